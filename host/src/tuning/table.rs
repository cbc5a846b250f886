//! The checked-in table: what was found on GPUs that were at hand.

use serde::Deserialize;

use super::Tuning;

/// The table as it is kept.
const TABLE: &str = include_str!("table.json");

/// What was found on one kind of GPU.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The GPU that it was found on, for people.
    pub gpu: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// The choices; those not named are the rules'.
    pub tuning: Tuning,
}

/// The row of GPUs of this capability and size.
pub fn row(capability: (u32, u32), multiprocessors: u32) -> Option<Row> {
    rows(TABLE)
        .into_iter()
        .find(|row| (row.capability, row.multiprocessors) == (capability, multiprocessors))
}

/// The sound rows of a table; of one that is no table none.
fn rows(text: &str) -> Vec<Row> {
    let rows: Vec<Row> = serde_json::from_str(text).unwrap_or_default();
    rows.into_iter().filter(|row| row.tuning.check().is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound_and_names_each_kind_of_gpu_once() {
        let all: Vec<Row> = serde_json::from_str(TABLE).unwrap();
        assert_eq!(all, rows(TABLE));
        for (i, row) in all.iter().enumerate() {
            let same = |other: &Row| (other.capability, other.multiprocessors) == (row.capability, row.multiprocessors);
            assert_eq!(all.iter().position(same), Some(i), "{}", row.gpu);
        }
    }

    #[test]
    fn what_a_row_leaves_out_is_the_rules() {
        let text = r#"[{"gpu": "some", "capability": [9, 0], "multiprocessors": 7, "tuning": {"head_blocks": 3}},
            {"gpu": "bad", "capability": [9, 0], "multiprocessors": 8, "tuning": {"head_blocks": 300}}]"#;
        let [row] = rows(text).try_into().unwrap();
        let expected = Tuning {
            head_blocks: 3,
            ..Tuning::default()
        };
        assert_eq!((row.tuning, row.multiprocessors), (expected, 7));
        assert_eq!(rows("[{]"), []);
    }

    #[test]
    fn an_unknown_gpu_has_no_row() {
        assert_eq!(row((1, 1), 1), None);
    }
}
