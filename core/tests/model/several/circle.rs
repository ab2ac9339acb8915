//! Whether a client that begins to wait would wait for itself: lets every client go on that can, until none can.

use super::{Call, Plain, Share};
use std::collections::BTreeSet;

/// One who waits, or would: for which keys, from which place in the queue of each.
struct Wait<'a> {
    client: usize,
    share: Share,
    keys: Vec<(u8, &'a [super::Stand])>,
}

impl Plain {
    /// `place`: where the call would stand in the queue of a key.
    pub(super) fn closes_circle(&self, call: &Call, place: impl Fn(&Self, u8) -> usize) -> bool {
        let mut waits: Vec<Wait<'_>> = Vec::new();
        for (at, stand) in self.line.iter().enumerate().filter(|(_, stand)| stand.waits) {
            let keys = stand.call.keys.iter().map(|key| (*key, &self.line[..at])).collect();
            waits.push(Wait { client: stand.call.client, share: stand.call.share, keys });
        }
        let keys = call.keys.iter().map(|key| (*key, &self.line[..place(self, *key)])).collect();
        waits.push(Wait { client: call.client, share: call.share, keys });
        // In a circle that is its own: it could go on if all that it holds were given back.
        let stuck = |gone: &[usize]| self.who_stands_still(&waits, gone).contains(&call.client);
        stuck(&[]) && !stuck(&[call.client])
    }

    /// Those who wait and never can go on, whoever else releases, and every lease ends that no session has; `gone`
    /// hold nothing.
    fn who_stands_still(&self, waits: &[Wait<'_>], gone: &[usize]) -> BTreeSet<usize> {
        let mut still: BTreeSet<usize> = waits.iter().map(|wait| wait.client).collect();
        loop {
            let goes_on = |wait: &&Wait<'_>| {
                wait.keys.iter().all(|(key, ahead)| {
                    let holds = |client: &usize| still.contains(client) && !gone.contains(client);
                    let grants = self.content(*key).grants().iter().filter(|grant| grant.end > self.now);
                    let stay = grants.filter(|grant| grant.session.as_ref().is_some_and(holds)).count();
                    let first = ahead.iter().filter(|stand| stand.waits && stand.call.keys == [*key]);
                    let fewest = first.map(|stand| stand.call.share.most()).min();
                    // One who holds alone has to end, however many the caller allows.
                    let is_one = matches!(self.content(*key), super::Content::One(_));
                    let most = fewest.unwrap_or(usize::MAX).min(wait.share.most());
                    stay < if is_one { 1 } else { most }
                })
            };
            let next = waits.iter().filter(|wait| still.contains(&wait.client)).find(goes_on).map(|wait| wait.client);
            match next {
                Some(client) => still.remove(&client),
                None => return still,
            };
        }
    }
}
