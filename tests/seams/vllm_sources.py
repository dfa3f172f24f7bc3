"""vLLM's sources, read without importing them: what does a module have, and with which parameters?"""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

from infernix_plugin.seams.versions import release

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


class Missing(Exception):
    """There is no such module or name, or it is defined in a way that this reader does not follow."""


class Sources:
    """The modules of one vLLM: a wheel, or a folder with the package ``vllm`` in it."""

    def __init__(self, place: Path) -> None:
        self._read: Callable[[str], str]
        if place.is_dir():
            self._names = {str(path.relative_to(place)) for path in place.glob("vllm/**/*.py")}
            self._read = lambda name: (place / name).read_text(encoding="utf-8")
            (about,) = place.glob("vllm-*.dist-info/METADATA")
            self.version = metadata.PathDistribution(about.parent).version
        else:
            wheel = zipfile.ZipFile(place)
            self._names = set(wheel.namelist())
            self._read = lambda name: wheel.read(name).decode()
            self.version = place.name.split("-")[1]
        self.release = release(self.version)
        self.module = cache(self._module)

    def parameters(self, module: str, dotted: str) -> tuple[str, ...]:
        """Return the parameter names of ``module.dotted``; of a class those of its constructor, without ``self``.

        Raises:
            Missing: see there.
        """
        found, home = self.definition(module, dotted)
        if isinstance(found, ast.ClassDef):
            return self._of_class(home, found)
        names = _names(found)
        return names[1:] if "." in dotted and _decorated(found, "classmethod") else names

    def is_own(self, module: str, dotted: str) -> bool:
        """Tell whether ``module.dotted`` is no member that a class inherits: replacing that would add one to it."""
        holder, _, _ = dotted.rpartition(".")
        if not holder:
            return True
        owner, _ = self.definition(module, holder)
        return self.definition(module, dotted)[0] in owner.body if isinstance(owner, ast.ClassDef) else False

    def has(self, module: str, name: str) -> bool:
        """Tell whether ``from module import name`` would find something."""
        try:
            body = self.module(module).body
        except Missing:
            return False
        return any(name in bound_names(node) for node in _statements(body)) or self._is_module(f"{module}.{name}")

    def words(self) -> set[str]:
        """Return every name that occurs in vLLM, as whatever."""
        return {word for name in self._names if name.endswith(".py") for word in _WORD.findall(self._read(name))}

    def _is_module(self, name: str) -> bool:
        path = name.replace(".", "/")
        return not {f"{path}.py", f"{path}/__init__.py"}.isdisjoint(self._names)

    def _module(self, name: str) -> ast.Module:
        path = name.replace(".", "/")
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            if candidate in self._names:
                return ast.parse(self._read(candidate))
        raise Missing(f"there is no module {name}")

    def definition(self, module: str, dotted: str) -> tuple[Definition, str]:
        """Return the definition of ``module.dotted``, and the module that it is in.

        Raises:
            Missing: see there.
        """
        name, *attributes = dotted.split(".")
        home, found = self._find(module, name)
        for attribute in attributes:
            if not isinstance(found, ast.ClassDef):
                raise Missing(f"{module}.{dotted}: {found.name} is no class")
            home, found = self._member(home, found, attribute)
        return found, home

    def _find(self, module: str, name: str) -> tuple[str, Definition]:
        """Return the definition of a name of a module, and where it is, through imports."""
        for node in _statements(self.module(module).body):
            if isinstance(node, Definition) and node.name == name:
                return module, node
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self._find(_imported(module, node), alias.name)
        raise Missing(f"{module} does not define {name}")

    def _member(self, module: str, owner: ast.ClassDef, name: str) -> tuple[str, Definition]:
        for node in _statements(owner.body):
            if isinstance(node, Definition) and node.name == name:
                return module, node
        for base in owner.bases:
            try:
                return self._member(*self._class(module, base), name)
            except Missing:
                continue
        raise Missing(f"{module}.{owner.name} has no {name}")

    def _class(self, module: str, base: ast.expr) -> tuple[str, ast.ClassDef]:
        if not isinstance(base, ast.Name):
            raise Missing(f"{module}: the base {ast.unparse(base)} is not followed")
        home, found = self._find(module, base.id)
        if not isinstance(found, ast.ClassDef):
            raise Missing(f"{module}: the base {base.id} is no class")
        return home, found

    def _of_class(self, module: str, owner: ast.ClassDef) -> tuple[str, ...]:
        if _decorated(owner, "dataclass") or any(ast.unparse(base) == "BaseModel" for base in owner.bases):
            return tuple(_fields(owner))
        _, constructor = self._member(module, owner, "__init__")
        assert isinstance(constructor, Function)
        return _names(constructor)[1:]


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a block, and of the blocks of its ``if`` and ``try``; a later one counts, as when it runs."""
    for node in reversed(list(body)):
        if isinstance(node, ast.If | ast.Try):
            for block in ("finalbody", "orelse", "handlers", "body"):
                for inner in getattr(node, block, ()):
                    yield from _statements(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])
        else:
            yield node


def bound_names(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module or a class binds."""
    match node:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return {name}
        case ast.Import(names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name.partition(".")[0] for alias in names}
        case ast.Assign(targets):
            return {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
        case ast.AnnAssign(ast.Name(name)):
            return {name}
    return set()


def _imported(module: str, node: ast.ImportFrom) -> str:
    if node.level:
        package = module.split(".")[: -node.level]
        return ".".join([*package, *([node.module] if node.module else [])])
    assert node.module is not None
    return node.module


def _decorated(node: Definition, name: str) -> bool:
    return any(name in ast.unparse(decorator) for decorator in node.decorator_list)


def _names(function: Function) -> tuple[str, ...]:
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args]
    listed += [arguments.vararg] if arguments.vararg else []
    listed += arguments.kwonlyargs
    listed += [arguments.kwarg] if arguments.kwarg else []
    return tuple(argument.arg for argument in listed)


def _fields(owner: ast.ClassDef) -> Iterator[str]:
    for node in owner.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
