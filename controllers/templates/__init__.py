"""ResourceClaimTemplates of translated pods: created, repaired, collected."""
