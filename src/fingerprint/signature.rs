//! Compat signatures: what decides a feature's values, as canonical JSON and its SHA-256.
//!
//! Leaves out: which facts belong into one (whoever computes the feature knows that). The dtype that
//! values are stored as does not.

use serde_json::Value;

use super::{canonical_json, sha256_hex};

/// What decides the values of a feature. Two that are equal name the same values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompatSignature {
    json: String,
    sha256: String,
}

impl CompatSignature {
    /// The signature that says `facts`.
    #[must_use]
    pub fn new(facts: &Value) -> Self {
        let json = canonical_json(facts);
        let sha256 = sha256_hex(json.as_bytes());
        Self { json, sha256 }
    }

    /// Its canonical JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// SHA-256 of [`CompatSignature::json`] as 64 lower-case hex digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The first member, by name, that says something else in `other`, and what both say; `None`
    /// where they are equal.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        let parse = |json: &str| serde_json::from_str::<Value>(json).unwrap_or_default();
        let (ours, theirs) = (parse(&self.json), parse(&other.json));
        let (Some(ours), Some(theirs)) = (ours.as_object(), theirs.as_object()) else {
            return (self != other).then(|| format!("{} against {}", self.json, other.json));
        };
        let mut names: Vec<_> = ours.keys().chain(theirs.keys()).collect();
        names.sort();
        let name = names.into_iter().find(|name| ours.get(*name) != theirs.get(*name))?;
        let say = |value: Option<&Value>| value.map_or("nothing".to_owned(), canonical_json);
        let (ours, theirs) = (say(ours.get(name)), say(theirs.get(name)));
        Some(format!("`{name}` is {ours} against {theirs}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn signatures_are_those_of_other_programs() {
        // Hashes that aenet's PyTorch caches carry for these descriptors.
        let descriptor = |species: Value, (radial, angular): ((u32, f64), (u32, f64)), min: f64| {
            CompatSignature::new(&json!({
                "descriptor_class": "aenet.torch_featurize.featurize.ChebyshevDescriptor",
                "species": species, "multi": species.as_array().unwrap().len() > 1,
                "rad_order": radial.0, "rad_cutoff": radial.1,
                "ang_order": angular.0, "ang_cutoff": angular.1, "min_cutoff": min,
            }))
        };
        let hydrogen = descriptor(json!(["H"]), ((1, 2.0), (0, 2.0)), 0.1);
        let want = "a2892e3759fbe366799f2b660d35945911346f68fa343fc76a7a0d9db412bac1";
        assert_eq!(hydrogen.sha256(), want, "{}", hydrogen.json());
        let titania = descriptor(json!(["Ti", "O"]), ((3, 5.0), (1, 3.0)), 0.5);
        let want = "e4071fd77203905cbb069ca956c7e3d38356f37aa57f85279143617f12757deb";
        assert_eq!(titania.sha256(), want, "{}", titania.json());
        assert_eq!(hydrogen.difference(&titania).unwrap(), "`ang_cutoff` is 2.0 against 3.0");
        assert_eq!(hydrogen.difference(&hydrogen), None);
    }
}
