"""Files: read data matrices, graphs and labels; write labels."""

from specialk_gpu.io.files import read_idx, read_labels, read_matrix, write_labels

__all__ = ["read_idx", "read_labels", "read_matrix", "write_labels"]
