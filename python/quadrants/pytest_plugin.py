"""Pytest plugin: coverage of kernels follows pytest-cov.

When pytest-cov measures, kernels are instrumented too (`QD_KERNEL_COVERAGE`), by arcs if it measures
branches. The environment is set before any conftest is read and is inherited by worker processes.
Nothing of the runtime is imported here.
"""

import os
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any, parser: Any, args: Any) -> None:
    options = early_config.known_args_namespace
    if not getattr(options, "cov_source", None) or getattr(options, "no_cov", False):
        return
    os.environ.setdefault("QD_KERNEL_COVERAGE", "1")
    if getattr(options, "cov_branch", None):
        os.environ.setdefault("_QD_KCOV_ARC", "1")
