// Reads columns of numbers, as deploy/demo_page/columns.py writes them.

// Return the numbers of a packed column, as a Float64Array.
export async function unpacked(text) {
  const [decimals, order, size, coded] = text.split(":");
  const bytes = Uint8Array.from(atob(coded), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const numbers = differences(new Uint8Array(await new Response(stream).arrayBuffer()), Number(size));
  for (let i = 0; i < Number(order); i += 1) addUp(numbers);
  return numbers.map(decimals < 0 ? (number) => number * 10 ** -decimals : (number) => number / 10 ** decimals);
}

// Return the columns of an object, unpacked; its other values stay as they are.
export async function unpackedAll(columns) {
  const isPacked = (value) => typeof value === "string" && /^-?\d+:\d:\d:/.test(value);
  const each = Object.entries(columns).map(async ([name, value]) => [name, isPacked(value) ? await unpacked(value) : value]);
  return Object.fromEntries(await Promise.all(each));
}

// Not with shifts, because numbers may have more than 32 bits.
function differences(bytes, size) {
  const count = bytes.length / size;
  return Float64Array.from({ length: count }, (_, i) => {
    let number = 0;
    for (let place = size - 1; place >= 0; place -= 1) number = number * 256 + bytes[place * count + i];
    return number % 2 ? -(number + 1) / 2 : number / 2;
  });
}

function addUp(numbers) {
  for (let i = 1; i < numbers.length; i += 1) numbers[i] += numbers[i - 1];
}
