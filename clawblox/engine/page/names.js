// The colour of a player, told by the name, so that figure and lists agree.

const HUES = [14, 205, 130, 284, 43, 173, 331, 238];

/** A hue in degrees. */
export function playerHue(name) {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 9973;
  return HUES[sum % HUES.length];
}
