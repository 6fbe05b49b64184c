"""Re-exports of the compatibility room."""


def _extract_arg(
    raise_on_templated_floats: bool, arg: object, annotation: object, arg_name: str
) -> object:
    from quadrants._compat.template_mapper import extract_arg

    return extract_arg(raise_on_templated_floats, arg, annotation, arg_name)
