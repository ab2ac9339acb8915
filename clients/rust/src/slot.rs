//! A key's hash slot in a cluster.

const SLOTS: u16 = 16_384;

/// CRC16 (XMODEM) of the key, or of its hash tag.
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) & SLOTS.wrapping_sub(1)
}

/// The text between the key's first braces.
pub(crate) fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let after = key.iter().position(|byte| *byte == b'{').and_then(|open| key.get(open.saturating_add(1)..));
    let within = after.and_then(|rest| rest.iter().position(|byte| *byte == b'}').and_then(|close| rest.get(..close)));
    within.filter(|tag| !tag.is_empty())
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_same_as_on_the_server() {
        // CLUSTER KEYSLOT
        for (key, expected) in [("123456789", 12739), ("foo", 12182), ("{foo}bar", 12182), ("a{foo}{bar}", 12182)] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(slot(b"{}foo"), crc16(b"{}foo") & 16383);
        assert_eq!(slot(b"foo{"), crc16(b"foo{") & 16383);
        assert_eq!(slot(b""), 0);
    }
}
