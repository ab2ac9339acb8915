//! The cluster slot of a key or a sharded channel. According to the cluster specification, it is the CRC16 (XMODEM) of
//! the name, or of its hash tag if it has one, modulo 16,384.

const SLOTS: u16 = 16_384;

/// The slot of a name.
#[must_use]
pub fn of(name: &[u8]) -> u16 {
    crc16(tag(name).unwrap_or(name)) % SLOTS
}

/// The text between the first `{` and the next `}`, unless it is empty.
fn tag(name: &[u8]) -> Option<&[u8]> {
    let open = name.iter().position(|byte| *byte == b'{')?;
    let rest = name.get(open.saturating_add(1)..)?;
    let close = rest.iter().position(|byte| *byte == b'}')?;
    rest.get(..close).filter(|tag| !tag.is_empty())
}

/// A byte at a time, because names can be long: the shifts are those of the polynomial, x^16 + x^12 + x^5 + 1.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let high = (crc >> 8) ^ u16::from(*byte);
        let high = high ^ (high >> 4);
        (crc << 8) ^ (high << 12) ^ (high << 5) ^ high
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_comes_from_the_hash_tag_or_the_name() {
        assert_eq!(crc16(b"123456789"), 0x31C3, "the specification's check value");
        for byte in 0..=u8::MAX {
            let bit_by_bit =
                (0..8).fold(
                    u16::from(byte) << 8,
                    |crc, _| {
                        if crc & 0x8000 == 0 {
                            crc << 1
                        } else {
                            (crc << 1) ^ 0x1021
                        }
                    },
                );
            assert_eq!(crc16(&[byte]), bit_by_bit, "{byte}");
        }
        for (name, same) in
            [(&b"{user1000}.following"[..], &b"user1000"[..]), (b"foo{{bar}}zap", b"{bar"), (b"foo{bar}{zap}", b"bar")]
        {
            assert_eq!(of(name), crc16(same) % SLOTS, "{name:?}");
        }
        assert_eq!(of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!((of(b"foo"), of(b"")), (12_182, 0));
    }
}
