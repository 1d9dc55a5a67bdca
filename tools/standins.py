"""Stand-ins for torch and NumPy where a package is built: enough for cards and arguments to be read, and no more.

Any module below them imports, and any name of theirs is there: it can be a base class, a decorator, an annotation or a
default. It computes nothing.
"""

import importlib.abc
import importlib.machinery
import sys
import types


class Found(type):
    """The classes that stand-ins are of: every operator and every attribute leads to another stand-in."""

    def __new__(cls, name, bases, scope):
        """Give the class every operator."""
        operators = "add radd sub rsub mul rmul truediv rtruediv floordiv mod pow rpow neg getitem invert or ror and"
        scope |= {f"__{word}__": lambda self, *args: self for word in operators.split()}
        return super().__new__(cls, name, bases, scope)


class Name(metaclass=Found):
    """A name of a package that is not there."""

    def __init__(self, module, name):
        self.__module__, self.__name__, self.__qualname__ = module, name, name
        self.base = None

    def __mro_entries__(self, bases):
        """The class that is a base where this name is written as one: the same at each place."""
        self.base = self.base or type(self.__name__, (), {"__module__": self.__module__})
        return (self.base,)

    def __call__(self, *args, **kwargs):
        """A decorator gives back what it stands on, but for one that makes an operator of torch's of it."""
        decorates = len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType | type)
        return args[0] if decorates and "library" not in self.__module__ else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = Name(f"{self.__module__}.{self.__name__}", name)
        setattr(self, name, found)
        return found

    def __iter__(self):
        return iter(())

    def __instancecheck__(self, value):
        return False

    def __subclasscheck__(self, cls):
        return self.base is not None and self.base in cls.__mro__

    def __float__(self):
        return 0.0


class Module(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = Name(self.__name__, name)
        setattr(self, name, found)
        return found


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module below some packages."""

    def __init__(self, *packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        """Find a module of theirs."""
        if name.split(".")[0] in self.packages:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        """Make it."""
        return Module(spec.name)

    def exec_module(self, module):
        """There is nothing in it."""


def install(*packages: str) -> None:
    """Put stand-ins in the place of packages, whether they are installed or not."""
    sys.meta_path.insert(0, Finder(*packages))
