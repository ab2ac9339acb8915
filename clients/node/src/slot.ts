/** A key's cluster slot: CRC16 of the part in braces, or of the whole key. */
export function slotOf(key: Buffer): number {
  const open = key.indexOf('{');
  const close = open < 0 ? -1 : key.indexOf('}', open + 1);
  const part = close > open + 1 ? key.subarray(open + 1, close) : key;
  let crc = 0;
  for (const byte of part) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : (crc << 1) & 0xffff;
  }
  return crc % 16384;
}
