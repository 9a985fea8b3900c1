//! What was measured, as a table or as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Pair;

/// One measurement.
#[derive(Debug)]
pub(crate) struct Figure {
    shape: String,
    what: String,
    unit: &'static str,
    ours: f64,
    /// What it is compared with, and its figure.
    limit: Option<(&'static str, f64)>,
    /// Ratios of speed of all rounds, ascending.
    ratios: Vec<f64>,
    target: Target,
}

/// What is aimed at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// A speed of at least this times the limit's.
    Ratio(f64),
    /// At most this, in the figure's unit.
    AtMost(f64),
    /// Nothing was set: the figure is there to be known.
    Open,
}

impl Figure {
    /// `amount` of something in the time that both took, as `unit` per second.
    pub(crate) fn rate(
        (shape, what): (&str, &str),
        (amount, unit): (f64, &'static str),
        against: &'static str,
        pair: Pair,
        target: Target,
    ) -> Self {
        Self {
            shape: shape.to_owned(),
            what: what.to_owned(),
            unit,
            ours: amount / pair.ours.as_secs_f64(),
            limit: Some((against, amount / pair.theirs.as_secs_f64())),
            ratios: pair.ratios,
            target,
        }
    }

    /// A figure that stands alone.
    pub(crate) fn alone(
        (shape, what): (&str, &str),
        (ours, unit): (f64, &'static str),
        target: Target,
    ) -> Self {
        let (shape, what) = (shape.to_owned(), what.to_owned());
        Self { shape, what, unit, ours, limit: None, ratios: Vec::new(), target }
    }

    fn ratio(&self) -> Option<f64> {
        self.ratios.get(self.ratios.len() / 2).copied()
    }

    fn passes(&self) -> Option<bool> {
        match self.target {
            Target::Ratio(least) => self.ratio().map(|ratio| ratio >= least),
            Target::AtMost(most) => Some(self.ours <= most),
            Target::Open => None,
        }
    }

    fn to_json(&self) -> Value {
        let target = match self.target {
            Target::Ratio(least) => json!({"ratio_at_least": least}),
            Target::AtMost(most) => json!({"at_most": most}),
            Target::Open => Value::Null,
        };
        json!({
            "shape": self.shape, "figure": self.what, "unit": self.unit, "rowmill": self.ours,
            "against": self.limit.map(|(name, _)| name), "limit": self.limit.map(|(_, n)| n),
            "ratio": self.ratio(), "ratios": self.ratios, "target": target,
            "passes": self.passes(),
        })
    }

    fn cells(&self) -> [String; 7] {
        let number = |n: f64| if n >= 100.0 { format!("{n:.0}") } else { format!("{n:.2}") };
        let spread = self.ratios.first().zip(self.ratios.last());
        [
            self.shape.clone(),
            self.what.clone(),
            format!("{} {}", number(self.ours), self.unit),
            self.limit.map(|(name, n)| format!("{} {name}", number(n))).unwrap_or_default(),
            match (self.ratio(), spread) {
                (Some(ratio), Some((low, high))) => format!("{ratio:.2} ({low:.2}–{high:.2})"),
                _ => String::new(),
            },
            match self.target {
                Target::Ratio(least) => format!("≥ {least}"),
                Target::AtMost(most) => format!("≤ {} {}", number(most), self.unit),
                Target::Open => String::new(),
            },
            self.passes().map(|ok| if ok { "pass" } else { "MISS" }.to_owned()).unwrap_or_default(),
        ]
    }
}

/// All figures: a Markdown table, or one JSON document.
pub(crate) fn print(figures: &[Figure], as_json: bool) -> String {
    if as_json {
        let all: Vec<_> = figures.iter().map(Figure::to_json).collect();
        return json!({"version": 1, "figures": all}).to_string();
    }
    let head = ["shape", "figure", "Rowmill", "against", "ratio", "target", ""];
    let rows: Vec<_> = figures.iter().map(Figure::cells).collect();
    let width = |i: usize| {
        let cells = rows.iter().map(|row| row[i].chars().count());
        cells.max().unwrap_or_default().max(head[i].len())
    };
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        for (i, cell) in cells.iter().enumerate() {
            // Text into memory: this cannot fail.
            write!(text, "| {cell:<0$} ", width(i)).ok();
        }
        text.push_str("|\n");
    };
    line(&head.map(str::to_owned));
    line(&std::array::from_fn::<_, 7, _>(|i| "-".repeat(width(i))));
    for row in &rows {
        line(row);
    }
    text
}
