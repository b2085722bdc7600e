"""Options of `python -m pytest benchmarks`."""


def pytest_addoption(parser):
    parser.addoption("--size", default="small", choices=("small", "medium", "large"))
    parser.addoption("--backend", default="numpy", choices=("numpy", "cuda"))
    parser.addoption("--mnist", help="folder with MNIST's idx files; a mixture without")
