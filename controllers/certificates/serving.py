"""The check that the webhook's serving certificate is still good. Pure."""

from collections.abc import Collection
from datetime import datetime

from cryptography import x509

from certs.authority import Authority
from certs.serving import ServingCertificate


def needs_renewal(
    certificate: ServingCertificate,
    signer: Authority,
    names: Collection[str],
    now: datetime,
    renew_fraction: float,
) -> bool:
    """Return True if a new certificate should be signed.

    Args:
        signer: The present signer of the cluster.
        names: DNS names and addresses that the certificate must have.
        renew_fraction: The fraction of the certificate's life after which it is renewed.
    """
    return (
        certificate.authority != signer.certificate_pem
        or not set(names) <= alternative_names(certificate)
        or not certificate.not_before <= now < certificate.renewal_time(renew_fraction)
    )


def alternative_names(certificate: ServingCertificate) -> set[str]:
    """Return the DNS names and addresses of a certificate."""
    x509_certificate = x509.load_pem_x509_certificates(certificate.certificate)[0]
    try:
        names = x509_certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except x509.ExtensionNotFound:
        return set()
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *map(str, addresses)}


def seconds_to_check(
    certificate: ServingCertificate | None, now: datetime, renew_fraction: float, period_s: float
) -> float:
    """Return the seconds of a period, or fewer if the certificate is due for renewal before.

    Its life may be shorter than that of the settings, which were others when it was issued.

    Args:
        renew_fraction: The fraction of the certificate's life after which it is renewed.
    """
    if certificate is None:
        return period_s
    left_s = (certificate.renewal_time(renew_fraction) - now).total_seconds()
    return min(period_s, left_s) if left_s > 0 else period_s
