//! `name:key=value,…`: the text that selects a policy or layout, checked against its declaration.
//! Names, keys and words are taken in any case.

use crate::duration::{self, Exact};
use exmex::Express;
use std::fmt;

/// One parameter that an entry of a list declares.
#[derive(Clone, Copy)]
pub struct Param {
    /// Key before the `=`.
    pub name: &'static str,
    /// Effect of the parameter, for help.
    pub what: &'static str,
    /// The values that it takes, and the default.
    pub kind: ParamKind,
}

/// The values that a parameter takes, and its default.
#[derive(Clone, Copy)]
pub enum ParamKind {
    /// A number between two bounds, both allowed.
    Number {
        /// Value without the parameter.
        default: f64,
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// One of some words; the first is the default.
    Word(&'static [&'static str]),
    /// A duration between two bounds, both allowed, in microseconds.
    Duration {
        /// Value without the parameter.
        default_us: u64,
        /// Least.
        min_us: u64,
        /// Greatest.
        max_us: u64,
    },
    /// Any text without a comma; empty by default.
    Text,
    /// An expression of some variables, without a comma. If it is the first parameter, its key may
    /// be left out.
    Expression {
        /// Value without the parameter.
        default: &'static str,
        /// The names that it may use.
        variables: &'static [&'static str],
    },
}

impl Param {
    /// Returns `key=value` with the default value.
    pub fn default(&self) -> String {
        match self.kind {
            ParamKind::Number { default, .. } => format!("{}={default}", self.name),
            ParamKind::Word(words) => format!("{}={}", self.name, words[0]),
            ParamKind::Duration { default_us, .. } => {
                format!("{}={}", self.name, Exact(default_us))
            }
            ParamKind::Text => format!("{}=", self.name),
            ParamKind::Expression { default, .. } => format!("{}={default}", self.name),
        }
    }
}

/// Shows the parameter with its default and the other values that it takes.
impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = match self.kind {
            ParamKind::Number { min, max, .. } => format!("{min} to {max}"),
            ParamKind::Word(words) => format!("or {}", words[1..].join(", ")),
            ParamKind::Duration { min_us, max_us, .. } => {
                format!("{} to {}", Exact(min_us), Exact(max_us))
            }
            ParamKind::Text => "any text".to_owned(),
            ParamKind::Expression { variables, .. } => {
                format!("an expression of {}", variables.join(", "))
            }
        };
        write!(f, "{} ({others}): {}", self.default(), self.what)
    }
}

/// The parameters that were given, already checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(Vec<(&'static str, Value)>);

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(f64),
    Word(&'static str),
    DurationUs(u64),
    Text(Box<str>),
}

impl Params {
    /// No parameter was given.
    pub const NONE: Self = Self(Vec::new());

    /// Returns a number: the given one or the default in `params`.
    ///
    /// # Panics
    ///
    /// If `params` does not declare `name` as a number.
    pub fn number(&self, params: &[Param], name: &str) -> f64 {
        match (self.get(name), find(params, name).kind) {
            (Some(Value::Number(number)), _) => *number,
            (None, ParamKind::Number { default, .. }) => default,
            _ => panic!("`{name}` is not declared as a number"),
        }
    }

    /// Returns a word: the given one or the default in `params`.
    ///
    /// # Panics
    ///
    /// If `params` does not declare `name` as a word.
    pub fn word(&self, params: &[Param], name: &str) -> &'static str {
        match (self.get(name), find(params, name).kind) {
            (Some(Value::Word(word)), _) => word,
            (None, ParamKind::Word(words)) => words[0],
            _ => panic!("`{name}` is not declared as a word"),
        }
    }

    /// Returns a duration in microseconds: the given one or the default in `params`.
    ///
    /// # Panics
    ///
    /// If `params` does not declare `name` as a duration.
    pub fn duration_us(&self, params: &[Param], name: &str) -> u64 {
        match (self.get(name), find(params, name).kind) {
            (Some(Value::DurationUs(us)), _) => *us,
            (None, ParamKind::Duration { default_us, .. }) => default_us,
            _ => panic!("`{name}` is not declared as a duration"),
        }
    }

    /// Returns a text or an expression: the given one, or the default, which of a text is empty.
    ///
    /// # Panics
    ///
    /// If `params` does not declare `name` as a text or an expression.
    pub fn text<'a>(&'a self, params: &[Param], name: &str) -> &'a str {
        match (self.get(name), find(params, name).kind) {
            (Some(Value::Text(text)), _) => text,
            (None, ParamKind::Text) => "",
            (None, ParamKind::Expression { default, .. }) => default,
            _ => panic!("`{name}` is not declared as a text"),
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Returns the name with the given parameters, as output shows the choice to people.
    pub fn label(&self, name: &str) -> String {
        let mut label = name.to_owned();
        for (n, (key, value)) in self.0.iter().enumerate() {
            label.push(if n == 0 { ':' } else { ',' });
            label.push_str(key);
            label.push('=');
            match value {
                Value::Number(number) => label.push_str(&number.to_string()),
                Value::Word(word) => label.push_str(word),
                Value::DurationUs(us) => label.push_str(&Exact(*us).to_string()),
                Value::Text(text) => label.push_str(text),
            }
        }
        label
    }
}

fn find<'a>(params: &'a [Param], name: &str) -> &'a Param {
    params
        .iter()
        .find(|param| param.name == name)
        .expect("a parameter is declared where it is read")
}

/// A selection that cannot be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The list has no entry of this name.
    #[error("no {kind} is called `{name}`{}; there are: {known}", did_you_mean(*nearest))]
    Name {
        /// Kind of the item, such as policy or layout.
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// The name in the list that is most like it, if one is.
        nearest: Option<&'static str>,
        /// The names in the list.
        known: String,
    },
    /// The entry has no such parameter, or the text is not `key=value`.
    #[error("{kind} `{name}` takes no `{given}`; it takes: {known}")]
    Param {
        /// Kind of the item, such as policy or layout.
        kind: &'static str,
        /// The entry of the list.
        name: &'static str,
        /// The text that was given.
        given: String,
        /// The parameters of the entry.
        known: String,
    },
    /// The parameter does not take this value.
    #[error("`{value}` is no value for {name}'s {param}")]
    Value {
        /// The entry of the list.
        name: &'static str,
        /// The parameter, with its bounds.
        param: String,
        /// The value that was given.
        value: String,
    },
}

/// Returns the name that a mistyped one stands for, if it is like one of these: it differs by a
/// letter in three, or begins or continues the name.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const SHORTEST: usize = 2;
    let wanted = wanted.to_ascii_lowercase();
    let likeness = |name: &&str| {
        let lower = name.to_ascii_lowercase();
        let differs = strsim::osa_distance(&wanted, &lower);
        let likely = differs <= (wanted.chars().count().max(lower.chars().count()) / 3).max(1);
        let is_part = |part: &str, whole: &str| part.len() > SHORTEST && whole.starts_with(part);
        let fits = is_part(&wanted, &lower) || is_part(&lower, &wanted) || likely;
        (fits && wanted.len() >= SHORTEST).then_some(differs)
    };
    let each = names.into_iter().filter_map(|name| Some((likeness(&name)?, name)));
    each.min_by_key(|(differs, _)| *differs).map(|(_, name)| name)
}

/// Returns a name as a proposal, in brackets behind a space; nothing without one.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// An entry of a list, which is selected by its name: a policy, a layout or a device.
pub trait Listed: Sized + 'static {
    /// Noun for an entry of the list, for messages.
    const KIND: &'static str;
    /// The list.
    const ALL: &'static [Self];

    /// Returns the name in the list, and the parameters that `name:key=value` takes.
    fn declared(&self) -> (&'static str, &'static [Param]);

    /// Returns the name in the list that another program's name stands for.
    fn synonym(_wanted: &str) -> Option<&'static str> {
        None
    }
}

/// An entry of a list with the parameters that were given for it.
pub struct Selection<T: 'static> {
    /// Entry of the list.
    pub spec: &'static T,
    /// Parameters that were given; others have their defaults.
    pub params: Params,
}

impl<T> Clone for Selection<T> {
    fn clone(&self) -> Self {
        Self { spec: self.spec, params: self.params.clone() }
    }
}

impl<T: Listed> Selection<T> {
    /// Returns an entry with its defaults.
    pub fn default_of(spec: &'static T) -> Self {
        Self { spec, params: Params::default() }
    }

    /// Reads `name` or `name:key=value,…`.
    ///
    /// # Errors
    ///
    /// The list has no such name, the entry has no such parameter, or the parameter no such value.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (spec, params) = select(text)?;
        Ok(Self { spec, params })
    }

    /// Returns the name with the parameters that were given.
    pub fn label(&self) -> String {
        self.params.label(self.spec.declared().0)
    }
}

/// Returns whether a text is an expression of these variables.
fn is_expression(text: &str, variables: &[&str]) -> bool {
    exmex::parse::<f64>(text).is_ok_and(|parsed| {
        parsed.var_names().iter().all(|name| variables.contains(&name.as_str()))
    })
}

fn select<T: Listed>(text: &str) -> Result<(&'static T, Params), Error> {
    let kind = T::KIND;
    let (wanted, rest) = text.split_once(':').unwrap_or((text, ""));
    let named =
        |name: &str| T::ALL.iter().find(|spec| spec.declared().0.eq_ignore_ascii_case(name));
    let Some(found) = named(wanted).or_else(|| named(T::synonym(wanted)?)) else {
        let names = T::ALL.iter().map(|spec| spec.declared().0);
        let (nearest, known) = (nearest(wanted, names.clone()), names.collect::<Vec<_>>());
        let (name, known) = (wanted.to_owned(), known.join(", "));
        return Err(Error::Name { kind, name, nearest, known });
    };
    let (name, declared) = found.declared();
    let mut params = Params::default();
    for given in rest.split(',').filter(|given| !given.is_empty()) {
        let pair = given.split_once('=');
        let named = pair.and_then(|(key, value)| {
            Some((declared.iter().find(|param| param.name.eq_ignore_ascii_case(key))?, value))
        });
        let alone = declared
            .first()
            .filter(|param| pair.is_none() && matches!(param.kind, ParamKind::Expression { .. }));
        let Some((param, value)) = named.or(alone.map(|param| (param, given))) else {
            let known = match declared {
                [] => "no parameters".to_owned(),
                _ => declared.iter().map(Param::to_string).collect::<Vec<_>>().join("; "),
            };
            return Err(Error::Param { kind, name, given: given.to_owned(), known });
        };
        let value = match param.kind {
            ParamKind::Number { min, max, .. } => {
                value.parse::<f64>().ok().filter(|n| (min..=max).contains(n)).map(Value::Number)
            }
            ParamKind::Word(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(value));
                word.map(|word| Value::Word(word))
            }
            ParamKind::Duration { min_us, max_us, .. } => {
                let us = duration::parse_zero_or_us(value).ok();
                us.filter(|us| (min_us..=max_us).contains(us)).map(Value::DurationUs)
            }
            ParamKind::Text => Some(Value::Text(value.into())),
            ParamKind::Expression { variables, .. } => {
                is_expression(value, variables).then(|| Value::Text(value.into()))
            }
        }
        .ok_or_else(|| Error::Value {
            name,
            param: param.to_string(),
            value: value.to_owned(),
        })?;
        params.0.retain(|(key, _)| *key != param.name);
        params.0.push((param.name, value));
    }
    Ok((found, params))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(&'static str, &'static [Param]);
    const THINGS: &[Thing] = &[
        Thing("plain", &[]),
        Thing(
            "rich",
            &[
                Param {
                    name: "n",
                    what: "a number",
                    kind: ParamKind::Number { default: 3.0, min: 0.0, max: 9.0 },
                },
                Param { name: "w", what: "a word", kind: ParamKind::Word(&["one", "two"]) },
                Param {
                    name: "t",
                    what: "a time",
                    kind: ParamKind::Duration {
                        default_us: 2_500_000,
                        min_us: 1000,
                        max_us: 60_000_000,
                    },
                },
                Param {
                    name: "z",
                    what: "a pause",
                    kind: ParamKind::Duration { default_us: 5, min_us: 0, max_us: 9 },
                },
            ],
        ),
    ];

    impl Listed for Thing {
        const KIND: &'static str = "thing";
        const ALL: &'static [Self] = THINGS;

        fn declared(&self) -> (&'static str, &'static [Param]) {
            (self.0, self.1)
        }
    }

    fn choose(text: &str) -> Result<(&'static Thing, Params), Error> {
        Selection::parse(text).map(|selection| (selection.spec, selection.params))
    }

    #[test]
    fn a_parameter_has_its_given_value_or_its_default() {
        let (thing, params) = choose("rich").unwrap();
        assert_eq!((params.number(thing.1, "n"), params.word(thing.1, "w")), (3.0, "one"));
        let (thing, params) = choose("rich:w=two,n=4").unwrap();
        assert_eq!((params.number(thing.1, "n"), params.word(thing.1, "w")), (4.0, "two"));
        assert_eq!(params.duration_us(thing.1, "t"), 2_500_000);
        assert_eq!(Selection { spec: thing, params }.label(), "rich:w=two,n=4");
        let (thing, params) = choose("rich:t=1min").unwrap();
        assert_eq!(params.duration_us(thing.1, "t"), 60_000_000);
        assert_eq!(Selection { spec: thing, params }.label(), "rich:t=60s");
    }

    /// The error named 0 s as the least value, and refused it.
    #[test]
    fn a_duration_may_be_its_least_value_if_that_is_zero() {
        let (thing, params) = choose("rich:z=0s").unwrap();
        assert_eq!(params.duration_us(thing.1, "z"), 0);
        let label = Selection { spec: thing, params }.label();
        assert_eq!(label, "rich:z=0s");
        assert!(choose(&label).is_ok());
        assert!(choose("rich:t=0s").is_err());
    }

    #[test]
    fn names_keys_and_words_are_taken_in_any_case() {
        let (thing, params) = choose("RICH:W=Two,N=4").unwrap();
        assert_eq!(Selection { spec: thing, params }.label(), "rich:w=two,n=4");
    }

    /// `--policy lur` once answered with the list of 30 names alone.
    #[test]
    fn a_mistyped_name_gets_a_proposal() {
        for (given, meant) in [
            ("rihc", Some("rich")),
            ("Ritch", Some("rich")),
            ("plai", Some("plain")),
            ("plains-and-hills", Some("plain")),
            ("poor", None),
            ("", None),
            ("p", None),
        ] {
            assert_eq!(nearest(given, ["plain", "rich"]), meant, "{given}");
        }
        let error = choose("rihc").err().unwrap().to_string();
        let says = "no thing is called `rihc` (did you mean `rich`?); there are: plain, rich";
        assert_eq!(error, says);
        let policies = ["arc", "lru", "2q", "clock", "clockpro", "lirs"];
        assert_eq!(nearest("lur", policies), Some("lru"));
    }

    #[test]
    fn an_error_names_the_wrong_part_and_the_alternatives() {
        for (text, says) in [
            ("poor", "no thing is called `poor`; there are: plain, rich"),
            ("plain:x=1", "thing `plain` takes no `x=1`; it takes: no parameters"),
            ("rich:x=1", "n=3 (0 to 9): a number; w=one (or two): a word"),
            ("rich:n", "thing `rich` takes no `n`"),
            ("rich:n=10", "`10` is no value for rich's n=3 (0 to 9)"),
            ("rich:n=NaN", "`NaN` is no value"),
            ("rich:x=1", "t=2500ms (1ms to 60s): a time"),
            ("rich:t=60", "`60` is no value for rich's t=2500ms"),
            ("rich:t=61s", "`61s` is no value"),
            ("rich:w=three", "`three` is no value for rich's w=one (or two)"),
        ] {
            let error = choose(text).err().unwrap().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
