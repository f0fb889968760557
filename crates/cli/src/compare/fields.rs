//! The JSON Schema of the lines of `compare --json`, from the lists of their figures.

use super::{curve::CurveLine, objects::ObjectsLine, sample::SampledLine, sift::SifterLine};
use flashsift_study::{figures::definition, record::definitions};

/// The lines of `--explain`: a decision has its own numbers.
const EXPLAINED: &str = r#""explained": {
   "title": "A decision of a sifter (--explain)",
   "type": "object",
   "additionalProperties": false,
   "required": ["schema", "trace", "sifter", "memory_bytes", "decision"],
   "properties": {
    "schema": {"const": 1, "description": "Version of the record."},
    "trace": {"type": "string", "description": "Name of the trace."},
    "sifter": {"type": "string", "description": "Sifter with the parameters given; `none` is the page cache alone."},
    "memory_bytes": {"type": "integer", "minimum": 0, "description": "Memory of sifter and page cache together."},
    "decision": {"type": "object", "description": "The file, the decision, its reason in numbers, and what followed.", "required": ["at_us", "name", "bytes", "keep_in_ram"]}
   }
  }"#;

/// Kinds of lines, by their definitions.
const LINES: [&str; 7] = ["cell", "sampled", "sifter", "verdict", "explained", "objects", "curve"];

/// Returns the schema.
pub(crate) fn schema() -> String {
    let mut all = definitions();
    all.extend([
        definition::<SampledLine<'_>>(),
        definition::<SifterLine<'_>>(),
        EXPLAINED.to_owned(),
        definition::<ObjectsLine<'_>>(),
        definition::<CurveLine<'_>>(),
    ]);
    let lines = LINES.map(|name| format!("\n  {{\"$ref\": \"#/$defs/{name}\"}}"));
    format!(
        r#"{{
 "$schema": "https://json-schema.org/draft/2020-12/schema",
 "title": "A line of `flashsift compare --json`",
 "description": "A field is absent where it has no meaning. Fields may be added to a version.",
 "anyOf": [{}
 ],
 "$defs": {{
  {}
 }}
}}
"#,
        lines.join(","),
        all.join(",\n  ")
    )
}
