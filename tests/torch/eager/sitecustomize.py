# SPDX-License-Identifier: Apache-2.0
"""Python reads this at its start where PYTHONPATH names the folder. PyTorch's optimizers import all of torch.compile at their first step, to keep
themselves out of it; that is half of what a short script costs. Where nothing is compiled they get what they ask for without the rest, which is
loaded once anybody asks for anything else of it."""
import importlib.abc
import importlib.machinery
import sys
import types

NAME = 'torch._dynamo'


def disable(fn=None, recursive=True, **_):
    return fn if fn is not None else lambda fn: fn


class Lazy(types.ModuleType):
    """It becomes the real one when it is asked for what it lacks."""

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        self.load()
        return getattr(self, name)

    def load(self):
        self.__class__ = types.ModuleType
        self.__spec__ = self.__dict__.pop('_real')
        self.__loader__, self.__file__ = self.__spec__.loader, self.__spec__.origin
        self.__loader__.exec_module(self)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.startswith(NAME + '.') and isinstance(sys.modules.get(NAME), Lazy):
            sys.modules[NAME].load()
        if name != NAME:
            return None
        self.real = importlib.machinery.PathFinder.find_spec(name, path, target)
        made = self.real and importlib.machinery.ModuleSpec(name, self, origin=self.real.origin, is_package=True)
        if made:
            made.submodule_search_locations = self.real.submodule_search_locations
        return made

    def create_module(self, spec):
        made = Lazy(spec.name)
        made.__dict__.update(_real=self.real, disable=disable, graph_break=lambda *_, **__: None)
        return made

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
