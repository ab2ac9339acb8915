//! Medians, and the ratio of one contender to another.

/// The middle of the values, or the mean of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// The values in ascending order.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    assert!(!values.is_empty(), "nothing was measured");
    values.sort_by(f64::total_cmp);
    values
}

/// The median of the rounds' ratios, the lowest and the highest. Each ratio compares within a round, so that anything
/// that slows down the whole round cancels out.
#[derive(Clone, Copy)]
pub struct Ratio {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub rounds: usize,
}

impl Ratio {
    pub fn of(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        if ours.is_empty() || ours.len() != theirs.len() {
            return None;
        }
        let ratios = sorted(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs));
        let (low, high) = (*ratios.first()?, *ratios.last()?);
        Some(Self { median: median(ratios.iter().copied()), low, high, rounds: ratios.len() })
    }
}
