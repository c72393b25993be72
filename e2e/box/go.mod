module drawbridge.internal/e2e/box

go 1.26.0
