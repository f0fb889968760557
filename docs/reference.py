"""Makes the pages of reference: JSON, columns, Python, command line."""

import ast
import json
import os
import re
import runpy
import shutil
import subprocess

GENERATED = "generated"
FIELDS = "../python/flashsift/_fields.py"


def generate(docs):
    """Writes the pages."""
    out = docs / GENERATED
    out.mkdir(exist_ok=True)
    pages = {
        "json.md": json_page(docs / "compare.schema.json"),
        "columns.md": columns_page(docs / FIELDS, docs / "compare.schema.json"),
        "python.md": python_page(docs / "../python/flashsift"),
        "commands.md": commands_page(docs / ".."),
    }
    for name, text in pages.items():
        path = out / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def json_page(path):
    """Returns a table for each kind of line of `compare --json`."""
    schema = json.loads(path.read_text())
    parts = [
        "# JSON of compare", "", schema["description"], "",
        "The schema itself is `docs/compare.schema.json`; tests check lines against it.", "",
    ]
    for name in ("cell", "sampled", "sifter", "verdict", "explained"):
        kind = schema["$defs"][name]
        parts += [f"## {kind['title']}", "", "| field | type | |", "|---|---|---|"]
        for field, facts in kind["properties"].items():
            needed = "" if field in kind["required"] else ", may be absent"
            parts.append(f"| `{field}` | {typed(facts)}{needed} | {described(facts, schema)} |")
        parts.append("")
    return "\n".join(parts)


def typed(facts):
    kind = facts.get("type", "object" if "$ref" in facts else "string")
    return " or ".join(kind) if isinstance(kind, list) else kind


def described(facts, schema):
    if "$ref" in facts and "description" not in facts:
        return schema["$defs"][facts["$ref"].rsplit("/", 1)[1]]["title"] + "."
    return facts.get("description", "")


def columns_page(path, schema):
    """Returns the columns of events and of sweeps."""
    fields = json.loads(schema.read_text())["$defs"]
    known = {}
    for kind in ("cell", "sampled", "sifter"):
        for name, facts in fields[kind]["properties"].items():
            known.setdefault(name, facts.get("description", ""))
    for name, facts in fields["lifetime"]["properties"].items():
        known[f"lifetime_{name}"] = facts["description"]
    known |= {
        "path": "Path or URL of the trace, as the sweep was given it.",
        "hit_ratio": "hits / accesses.",
        "nvm_costs": "Time and energy of each modelled memory, by its name, as JSON.",
    }
    columns = runpy.run_path(str(path))["columns"]
    parts = ["# Parquet columns", "", events_table(path), ""]
    for title, name in (("Results of a sweep: cells", "cell"), ("Sifters", "sifter")):
        parts += [f"## {title}", "", "| column | type | |", "|---|---|---|"]
        for column, kind in columns(fields, name).items():
            parts.append(f"| `{column}` | {kind} | {known.get(column, '')} |")
        parts.append("")
    return "\n".join(parts)


def events_table(path):
    """Returns the table of the store, from the documentation of its module."""
    store = path.parents[2] / "crates/traces/src/store.rs"
    doc = [line[3:].strip() for line in store.read_text().splitlines() if line.startswith("//!")]
    begin = next(n for n, line in enumerate(doc) if line.startswith("| column"))
    rows = []
    for line in doc[begin:]:
        if line.startswith("|"):
            rows.append(line)
        elif rows and not rows[-1].endswith("|"):
            rows[-1] += " " + line
        else:
            break
    kinds = re.search(r"^kinds! \{(.*?)^\}", store.read_text(), re.DOTALL | re.MULTILINE)[1]
    names = re.findall(r'"([a-z-]+)"', kinds)
    actions = ", ".join(f"`{name}`" for name in names)
    return "\n".join(["## Events", "", *rows, "", f"Actions are names: {actions}."])


def python_page(package):
    """Returns the public functions and classes with their documentation."""
    parts = ["# Python", ""]
    modules = [
        ("flashsift", "_trace.py", ["open", "compare", "describe", "Trace"]),
        ("flashsift", "_policy.py", ["Policy", "check"]),
        ("flashsift.plot", "plot.py", None),
        ("flashsift.train", "train/__init__.py", None),
        ("flashsift", "_native.pyi", ["examples", "feature_names", "FileModel"]),
    ]
    private = {"once", "on_device", "need", "grouped", "look", "by_size", "draw"}
    for module, file, wanted in modules:
        source = (package / file).read_text()
        for node in ast.parse(source).body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name in private:
                continue
            if wanted is not None and node.name not in wanted:
                continue
            parts += documented(f"{module}.{node.name}", node)
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    public = isinstance(inner, ast.FunctionDef) and (
                        not inner.name.startswith("_") or inner.name == "__arrow_c_stream__"
                    )
                    if public:
                        parts += documented(f"{node.name}.{inner.name}", inner)
    return "\n".join(parts)


def documented(name, node):
    """Returns the heading, signature and documentation of a function or class."""
    lines = [f"## {name}", ""]
    if isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        lines += ["```python", f"{node.name}({ast.unparse(node.args)}){returns}", "```", ""]
    doc = ast.get_docstring(node)
    return [*lines, doc or "", ""]


def commands_page(root):
    """Returns the help of every command, if the program is built."""
    parts = ["# Command line", ""]
    program = program_of(root)
    if program is None:
        return "\n".join([*parts, "`flashsift --help` and `flashsift COMMAND --help` list all.", ""])

    def helped(*words):
        environment = os.environ | {"COLUMNS": "96"}
        done = subprocess.run(
            [program, *words, "--help"], capture_output=True, text=True, check=True, env=environment
        )
        return done.stdout

    top = helped()
    parts += ["```text", top.rstrip(), "```", ""]
    # The commands stand in groups before the options of all of them.
    groups = top.partition("All commands:")[0]
    for name in re.findall(r"^  ([a-z]+) ", groups, re.MULTILINE):
        # The help of the first two is Python's.
        if name not in ("train", "sweep", "help"):
            parts += [f"## flashsift {name}", "", "```text", helped(name).rstrip(), "```", ""]
    return "\n".join(parts)


def program_of(root):
    for path in ("target/release/flashsift", "target/debug/flashsift"):
        if (root / path).exists():
            return str((root / path).resolve())
    return shutil.which("flashsift")
