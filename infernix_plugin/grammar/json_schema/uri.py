"""Resolve a URI reference against a base URI: RFC 3986, section 5.

The standard library's ``urljoin`` knows only the schemes of a list, and identities of schemas may have any.
"""

from __future__ import annotations

import re

_PARTS = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


def resolve(base: str, reference: str) -> tuple[str, str | None]:
    """The absolute URI without its fragment, and the fragment as it is written, ``None`` if there is none.

    Args:
        base: an absolute URI.
        reference: a URI reference; one that is malformed comes out as something that is equal to no URI.
    """
    scheme, authority, path, query, fragment = _split(reference)
    if scheme is None:
        scheme, base_authority, base_path, base_query, _ = _split(base)
        if authority is None:
            authority = base_authority
            if path == "":
                path, query = base_path, base_query if query is None else query
            elif not path.startswith("/"):
                path = _merged(base_path, path, absolute=authority is not None)
    return _joined(scheme, authority, _without_dots(path), query), fragment


def _split(uri: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    parts = _PARTS.fullmatch(uri)
    assert parts is not None, "the expression matches every string"
    scheme, authority, path, query, fragment = parts.groups()
    return scheme, authority, path, query, fragment


def _merged(base: str, path: str, *, absolute: bool) -> str:
    if absolute and base == "":
        return "/" + path
    return base[: base.rfind("/") + 1] + path


def _without_dots(path: str) -> str:
    """The path without the steps ``.`` and ``..``."""
    steps = path.split("/")
    if "." not in steps and ".." not in steps:
        return path
    kept: list[str] = []
    for step in steps:
        if step == "..":
            kept = kept[:-1] or (kept and [""])
        elif step != ".":
            kept.append(step)
    if steps[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept)


def _joined(scheme: str | None, authority: str | None, path: str, query: str | None) -> str:
    front = "" if scheme is None else f"{scheme.lower()}:"
    host = "" if authority is None else f"//{authority}"
    return front + host + path + ("" if query is None else f"?{query}")
