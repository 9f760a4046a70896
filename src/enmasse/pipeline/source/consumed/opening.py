"""Where the source finds out that an address is no stream, and hands over."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from enmasse.errors import UnavailableError
from enmasse.pipeline.errors import StreamUnavailableError
from enmasse.pipeline.patience import Patience
from enmasse.pipeline.source.consumed.browsing import check_browsable
from enmasse.pipeline.source.consumed.link import find_type
from enmasse.pipeline.source.consumed.options import ConsumedOptions, check_stream, place_of
from enmasse.pipeline.source.consumed.reader import BrowsingReader, ConsumedStreamReader

__all__ = ["batch_reader", "stream_reader"]

_log = logging.getLogger(__name__)


def stream_reader(options: Mapping[str, str]) -> ConsumedStreamReader | None:
    """The reader of a streaming query over an address that is no stream; ``None`` if it is one.

    Raises:
        OptionError: an option is wrong.
        StreamUnavailableError: the node stayed away.
    """
    kind = _type_of(options)
    if kind == "stream":
        check_stream(options)
        return None
    chosen = ConsumedOptions.parse(options, kind)
    if chosen.is_lossy:
        _log.warning(
            "%s %r is read at most once: what is sent while the query does not run, or falls behind, is not seen",
            kind,
            chosen.source.address,
        )
    return ConsumedStreamReader(chosen)


def batch_reader(options: Mapping[str, str]) -> BrowsingReader | None:
    """The reader of a batch query over an address that is no stream; ``None`` if it is one.

    Raises:
        OptionError: an option is wrong, or the address keeps nothing.
        StreamUnavailableError: the node stayed away.
    """
    kind = _type_of(options)
    if kind == "stream":
        check_stream(options)
        return None
    chosen = ConsumedOptions.parse(options, kind, is_batch=True)
    check_browsable(chosen)
    return BrowsingReader(chosen)


def _type_of(options: Mapping[str, str]) -> str:
    source, kind = place_of(options)
    if kind:
        return kind
    patience = Patience(source.retry_timeout_s)
    while True:
        try:
            return find_type(source)
        except StreamUnavailableError:
            raise
        except UnavailableError as error:
            patience.wait(error)
