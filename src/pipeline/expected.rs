//! Compares a value that came with one that was expected.
//!
//! Invariant: numbers are compared as their type holds them: what a definition says is rounded to the
//! column's type first. NaN equals NaN, a missing value only another.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use serde_json::Value;

use super::given::value_shown;

/// How far floats may be apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerance {
    pub(super) absolute: f64,
    pub(super) relative: f64,
}

impl Tolerance {
    fn covers(self, expected: f64, got: f64) -> bool {
        #[expect(clippy::float_cmp, reason = "what is equal needs no tolerance")]
        let is_same = expected == got || (expected.is_nan() && got.is_nan());
        let is_near = || (expected - got).abs() <= self.absolute + self.relative * expected.abs();
        is_same || (expected.is_finite() && got.is_finite() && is_near())
    }
}

/// Where two values differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// The place of the first within an array or struct: `[3][1]`, `.a`.
    pub(super) at: String,
    pub(super) expected: String,
    pub(super) got: String,
    /// Scalars that differ, of so many.
    pub(super) n_different: u64,
    pub(super) n_scalars: u64,
}

/// Where the values of row `row` differ; both columns have one type.
pub(super) fn difference(
    expected: (&ArrayRef, usize),
    got: (&ArrayRef, usize),
    is_json: bool,
    tolerance: Tolerance,
) -> Option<Difference> {
    let mut walk = Walk { is_json, tolerance, way: Vec::new(), found: Difference::default() };
    walk.compare((expected.0, expected.1), (got.0, got.1));
    (walk.found.n_different > 0).then_some(walk.found)
}

/// A step into a value.
enum Step {
    Item(usize),
    Field(String),
}

struct Walk {
    is_json: bool,
    tolerance: Tolerance,
    way: Vec<Step>,
    found: Difference,
}

impl Walk {
    fn compare(&mut self, (expected, i): (&dyn Array, usize), (got, j): (&dyn Array, usize)) {
        if expected.is_null(i) || got.is_null(j) {
            return self.note(expected.is_null(i) && got.is_null(j), (expected, i), (got, j));
        }
        match expected.data_type() {
            DataType::FixedSizeList(..) => {
                let items = expected.as_fixed_size_list().value(i);
                self.lists(&items, &got.as_fixed_size_list().value(j));
            }
            DataType::List(_) => {
                let items = expected.as_list::<i32>().value(i);
                self.lists(&items, &got.as_list::<i32>().value(j));
            }
            DataType::LargeList(_) => {
                let items = expected.as_list::<i64>().value(i);
                self.lists(&items, &got.as_list::<i64>().value(j));
            }
            DataType::Struct(fields) => {
                let both = (expected.as_struct(), got.as_struct());
                let columns = both.0.columns().iter().zip(both.1.columns());
                for (field, (expected, got)) in fields.iter().zip(columns) {
                    self.way.push(Step::Field(field.name().clone()));
                    self.compare((expected, i), (got, j));
                    self.way.pop();
                }
            }
            _ => {
                let is_same = self.is_same((expected, i), (got, j));
                self.note(is_same, (expected, i), (got, j));
            }
        }
    }

    fn lists(&mut self, expected: &ArrayRef, got: &ArrayRef) {
        if expected.len() != got.len() {
            if self.found.n_different == 0 {
                self.found.at = self.place();
                let many = if expected.len() == 1 { "" } else { "s" };
                self.found.expected = format!("{} item{many}", expected.len());
                self.found.got = got.len().to_string();
            }
            self.found.n_different += 1;
            self.found.n_scalars += 1;
            return;
        }
        for item in 0..expected.len() {
            self.way.push(Step::Item(item));
            self.compare((expected, item), (got, item));
            self.way.pop();
        }
    }

    fn is_same(&self, (expected, i): (&dyn Array, usize), (got, j): (&dyn Array, usize)) -> bool {
        macro_rules! floats {
            ($type:ty) => {{
                let expected = expected.as_primitive::<$type>().value(i);
                let got = got.as_primitive::<$type>().value(j);
                self.tolerance.covers(expected.into(), got.into())
            }};
        }
        match expected.data_type() {
            DataType::Float16 => floats!(Float16Type),
            DataType::Float32 => floats!(Float32Type),
            DataType::Float64 => floats!(Float64Type),
            _ if self.is_json => {
                let parsed = |column: &dyn Array, row| {
                    let column = column.as_string_opt::<i64>();
                    column.and_then(|it| serde_json::from_str::<Value>(it.value(row)).ok())
                };
                let both = parsed(expected, i).zip(parsed(got, j));
                both.is_some_and(|(expected, got)| expected == got)
            }
            _ => expected.slice(i, 1).to_data() == got.slice(j, 1).to_data(),
        }
    }

    fn note(
        &mut self,
        is_same: bool,
        (expected, i): (&dyn Array, usize),
        (got, j): (&dyn Array, usize),
    ) {
        self.found.n_scalars += 1;
        if is_same {
            return;
        }
        if self.found.n_different == 0 {
            self.found.at = self.place();
            self.found.expected = value_shown(expected, i);
            self.found.got = value_shown(got, j);
        }
        self.found.n_different += 1;
    }

    fn place(&self) -> String {
        self.way.iter().fold(String::new(), |mut text, step| {
            let written = match step {
                Step::Item(item) => write!(text, "[{item}]"),
                Step::Field(name) => write!(text, ".{name}"),
            };
            written.ok();
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field;
    use serde_json::json;

    use super::super::given::column;
    use super::*;

    #[test]
    fn values_are_compared_as_their_type_holds_them() {
        use DataType::{FixedSizeList, Float32, Float64, Int64, LargeUtf8, List};
        let item = |kind| Arc::new(Field::new_list_field(kind, true));
        let pairs = || List(item(FixedSizeList(item(Float32), 2)));
        let (none, nan) = (Value::Null, json!("NaN"));
        let differs = |at: &str, expected: &str, got: &str, n: [u64; 2]| {
            let (at, expected, got) = (at.to_owned(), expected.to_owned(), got.to_owned());
            Some(Difference { at, expected, got, n_different: n[0], n_scalars: n[1] })
        };
        for (kind, expected, got, [absolute, relative], want) in [
            (Float32, json!(0.1), json!(0.100_000_001), [0.0; 2], None),
            (
                Float64,
                json!(0.1),
                json!(0.100_000_001),
                [0.0; 2],
                differs("", "0.1", "0.100000001", [1, 1]),
            ),
            (Float64, json!(100.0), json!(101.0), [0.0, 0.01], None),
            (Float64, json!(100.0), json!(101.0), [1.0, 0.0], None),
            (Float64, json!(0.0), json!(-0.0), [0.0; 2], None),
            (
                Float64,
                json!(100.0),
                json!(101.5),
                [0.4, 0.01],
                differs("", "100.0", "101.5", [1, 1]),
            ),
            (Float32, nan.clone(), nan.clone(), [0.0; 2], None),
            (Float32, nan.clone(), json!(1), [9.0; 2], differs("", "NaN", "1.0", [1, 1])),
            (
                Float32,
                json!("Infinity"),
                json!("-Infinity"),
                [9.0; 2],
                differs("", "inf", "-inf", [1, 1]),
            ),
            (Int64, json!(1), json!(2), [9.0; 2], differs("", "1", "2", [1, 1])),
            (Int64, none.clone(), none.clone(), [0.0; 2], None),
            (Int64, json!(1), none, [0.0; 2], differs("", "1", "no value", [1, 1])),
            (LargeUtf8, json!("a"), json!("b"), [0.0; 2], differs("", "\"a\"", "\"b\"", [1, 1])),
            (
                pairs(),
                json!([[1, 2], [3, 4]]),
                json!([[1, 2], [0, 5]]),
                [0.0; 2],
                differs("[1][0]", "3.0", "0.0", [2, 4]),
            ),
            (pairs(), json!([[1, 2]]), json!([]), [0.0; 2], differs("", "1 item", "0", [1, 1])),
        ] {
            let field = Field::new("x", kind, true);
            let of = |value| column(&field, &[value]).unwrap();
            let found = difference(
                (&of(&expected), 0),
                (&of(&got), 0),
                false,
                Tolerance { absolute, relative },
            );
            assert_eq!(found, want, "{expected} {got}");
        }
    }

    #[test]
    fn json_is_compared_by_what_it_says() {
        let field = Field::new("x", DataType::LargeUtf8, true);
        let of = |text: &str| column(&field, &[&json!(text)]).unwrap();
        let exact = Tolerance { absolute: 0.0, relative: 0.0 };
        for (one, other, is_same) in [
            ("{\"a\": 1, \"b\": []}", "{\"b\":[],\"a\":1}", true),
            ("{\"a\": 1}", "{\"a\": 2}", false),
            ("[1]", "no JSON", false),
        ] {
            let found = difference((&of(one), 0), (&of(other), 0), true, exact);
            assert_eq!(found.is_none(), is_same, "{one} {other}");
        }
    }
}
