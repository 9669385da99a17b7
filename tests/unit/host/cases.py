"""Every row operation of the host, in one tuple."""

from tests.unit.host import cases_attention, cases_gdn, cases_ngrams, cases_products, cases_streams

ALL = (
    *cases_products.OPERATIONS, *cases_streams.OPERATIONS, *cases_gdn.OPERATIONS, *cases_attention.OPERATIONS, *cases_ngrams.OPERATIONS,
)
