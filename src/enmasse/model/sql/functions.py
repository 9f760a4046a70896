"""The functions of Spark that SQL of pipelines and queries may call: those that only compute.

Not among them: what calls Java (``reflect``), reads files or reveals them (``from_protobuf``, ``input_file_name``),
reveals the session or the machine (``current_user``, ``version``), and what gives another answer when a batch is
done again (``rand``, ``uuid``, ``spark_partition_id``), for then nothing could be exactly once.
"""

from __future__ import annotations

import re
from typing import Final

ALLOWED_FUNCTIONS: Final = frozenset(
    """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate any any_value approx_count_distinct
    approx_percentile approx_top_k array array_agg array_append array_compact array_contains array_distinct
    array_except array_insert array_intersect array_join array_max array_min array_position array_prepend
    array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii asin asinh atan
    atan2 atanh avg base64 bigint bin binary bit_and bit_count bit_get bit_length bit_or bit_xor bool_and
    bool_or boolean bround btrim cardinality cast cbrt ceil ceiling char char_length character_length chr
    coalesce collate collation collect_list collect_set collect_union concat concat_ws contains conv
    convert_timezone corr cos cosh cot count count_if count_min_sketch counter_diff covar_pop covar_samp crc32
    csc cume_dist curdate current_date current_time current_timestamp current_timezone date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname
    dayofmonth dayofweek dayofyear decimal decode degrees dense_rank double e element_at elt encode endswith
    equal_null every exists exp explode explode_outer expm1 extract factorial filter find_in_set first
    first_value flatten float floor forall format_number format_string from_base32 from_csv from_json
    from_unixtime from_utc_timestamp get get_json_object getbit greatest grouping grouping_id hash hex
    histogram_numeric hmac hour hypot if ifnull ilike initcap inline inline_outer instr int is_valid_utf8
    is_valid_variant is_variant_null isnan isnotnull isnull jaro_winkler_similarity json_array_length
    json_object_keys json_tuple kurtosis lag last last_day last_value lcase lead least left len length
    levenshtein like listagg ln localtime localtimestamp locate log log10 log1p log2 lower lpad ltrim luhn_check
    make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz
    make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries map_filter map_from_arrays
    map_from_entries map_keys map_values map_zip_with mask max max_by md5 mean median min min_by minute mod mode
    month monthname months_between named_struct nanvl negative next_day now nth_value ntile nullif nullifzero
    nvl nvl2 octet_length overlay parse_json parse_url percent_rank percentile percentile_approx percentile_cont
    percentile_disc pi pmod posexplode posexplode_outer position positive pow power printf quarter quote radians
    range rank reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
    regexp_replace regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy repeat replace reverse right rint rlike round row_number rpad rtrim schema_of_csv
    schema_of_json schema_of_variant schema_of_variant_agg sec second sentences sequence session_window sha sha1
    sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size skewness slice smallint some
    sort_array soundex space split split_part sqrt stack startswith std stddev stddev_pop stddev_samp str_to_map
    string string_agg struct substr substring substring_index sum tan tanh time time_bucket time_diff
    time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc
    timestamp timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds tinyint to_base32 to_binary
    to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp to_varchar to_variant_object transform transform_keys transform_values
    translate trim trunc try_add try_aes_decrypt try_avg try_divide try_element_at try_make_interval
    try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json
    try_parse_url try_subtract try_sum try_to_binary try_to_date try_to_number try_to_time try_to_timestamp
    try_url_decode try_validate_utf8 try_variant_array_append try_variant_get try_variant_insert try_variant_set
    typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_nanos unix_seconds unix_timestamp upper
    url_decode url_encode validate_utf8 var_pop var_samp variance variant_array_append variant_delete
    variant_explode variant_explode_outer variant_get variant_insert variant_set variant_strip_nulls vector_avg
    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
    weekday weekofyear width_bucket window window_time xxhash64 year zeroifnull zip_with
    """.split()  # noqa: SIM905  a list literal would be 400 lines of quotes
)
"""By their names in lower case, as Spark 4.3 has them. Operators such as ``+`` and ``LIKE`` are no functions here."""

TABLE_FUNCTIONS: Final = frozenset(
    (
        "explode",
        "explode_outer",
        "inline",
        "inline_outer",
        "json_tuple",
        "posexplode",
        "posexplode_outer",
        "range",
        "stack",
    )
)
"""Those that may stand where a relation stands, or behind LATERAL VIEW."""

_JAVA = "it calls Java"
_PLACE = "it tells of the machine or the session"
_AGAIN = "it gives another answer when a batch is done again"
_FILES = "it reads files"
REASONS: Final[dict[str, str]] = {
    **dict.fromkeys(("reflect", "try_reflect", "java_method"), _JAVA),
    **dict.fromkeys(
        (
            "current_catalog",
            "current_database",
            "current_path",
            "current_schema",
            "current_user",
            "input_file_block_length",
            "input_file_block_start",
            "input_file_name",
            "python_worker_logs",
            "session_user",
            "user",
            "version",
        ),
        _PLACE,
    ),
    **dict.fromkeys(("from_avro", "to_avro", "from_protobuf", "to_protobuf", "schema_of_avro"), _FILES),
    **dict.fromkeys(
        (
            "monotonically_increasing_id",
            "rand",
            "randn",
            "random",
            "randstr",
            "shuffle",
            "spark_partition_id",
            "uniform",
            "uuid",
        ),
        _AGAIN,
    ),
}
"""Why some that Spark has are not among them."""

MODEL_PREFIX: Final = "model_"
"""The start of a model's name where SQL of a step calls it."""

_MODEL_CALL = re.compile(rf"\b{MODEL_PREFIX}[a-z0-9_]+(?=\s*\()")


def model_calls(text: str) -> frozenset[str]:
    """Return the names of functions in a text that stand for models, in lower case."""
    return frozenset(_MODEL_CALL.findall(text.lower()))
