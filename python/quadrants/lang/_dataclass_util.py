"""Names of dataclass members that became parameters of their own."""


def create_flat_name(base: str, child: str) -> str:
    """The parameter name of a member: `__qd_base__qd_child`."""
    return f"{base if base.startswith('__qd_') else '__qd_' + base}__qd_{child}"
