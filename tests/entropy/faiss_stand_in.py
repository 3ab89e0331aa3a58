"""A module that takes the place of FAISS with GPU support in a child process, where there is none.

Its search is torch's, on whatever device the tensors are on; what it is called with is kept in
`calls`. It says nothing about FAISS, only about what we do with it.
"""

from pathlib import Path

_MODULE = """
import os, time, torch

calls, temp_memory = [], []

def get_num_gpus():
    return 1

class StandardGpuResources:
    def setTempMemory(self, size):
        temp_memory.append(size)

def knn_gpu(resources, xq, xb, k, D=None, I=None, device=-1):
    {first}
    calls.append((xq.data_ptr(), xb.data_ptr(), len(xq), device))
    squares, index = (torch.cdist(xq, xb) ** 2).topk(k, largest=False)
    if I is None:
        return squares, index
    return squares, I.copy_(index)
"""


def write_stand_in(folder: Path, first: str = "pass") -> str:
    """Puts the module into a folder for PYTHONPATH; `first` is what its search does first."""
    package = folder / "faiss"
    (package / "contrib").mkdir(parents=True)
    (package / "__init__.py").write_text(_MODULE.format(first=first))
    (package / "contrib" / "__init__.py").write_text("")
    (package / "contrib" / "torch_utils.py").write_text("")
    return str(folder)
