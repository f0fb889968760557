"""The columns of the results of a sweep, from the JSON Schema of `compare --json`.

Nested objects are columns with the name of the object before them.
"""

from collections.abc import Iterator
from typing import Any

Definitions = dict[str, Any]

TYPES = {"integer": "Int64", "number": "Float64", "string": "String", "boolean": "Boolean"}
# Neither the version nor the time of a run is a result.
LEFT_OUT = {"schema", "cpu_ns_per_access"}
FIRST = {
    "cell": ["trace", "path", "policy", "system", "readahead", "writeback", "removals", "frames",
             "memory_bytes", "sample"],
    "sifter": ["trace", "path"],
}
# Columns of a sweep alone, and of samples, before one that all have.
BEFORE = {
    "cell": {
        "device_reads": ["hit_ratio", "hit_ratio_error"],
        "direct_reads": ["device_reads_error"],
        "device_write_requests": ["device_writes_error"],
    },
    "sifter": {"device_reads": ["hit_ratio"]},
}


def columns(defined: Definitions, kind: str) -> dict[str, str]:
    """Returns the columns of a kind of line, cell or sifter, with the names of their types."""
    types = dict(flattened(defined, kind))
    names = FIRST[kind] + [name for name in types if name not in FIRST[kind]]
    for before, more in BEFORE[kind].items():
        at = names.index(before)
        names[at:at] = more
    return {name: types.get(name, "String" if name == "path" else "Float64") for name in names}


def flattened(defined: Definitions, kind: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, facts in defined[kind]["properties"].items():
        is_of = facts.get("type", "string")
        if "$ref" in facts:
            inner = facts["$ref"].rsplit("/", 1)[1]
            yield from flattened(defined, inner, f"{prefix}{name}_")
        elif is_of == "object":
            # Costs by the name of a memory are JSON in one column.
            yield "nvm_costs", "String"
        elif is_of != "array" and name not in LEFT_OUT:
            yield prefix + name, TYPES[is_of[0] if isinstance(is_of, list) else is_of]
