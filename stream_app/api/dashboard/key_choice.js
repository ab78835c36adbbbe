// What a reader has chosen of a stream's keys. A stream has one field of keys, or several: a key of the fields country
// and device is "FR/mobile", and "FR/*" means all keys of FR. In a value "/" is written "\/", and "\" is written "\\";
// the value "*" is written "\*".

// Return the fields of the keys: {field, values} each, with the number of its values. A stream with one field has one
// entry, without a name. Args: axes, of the answer of /v1/streams/{s}.
export const fieldsOf = (axes) => axes?.key_fields ?? (axes?.keys ? [{ field: "", values: axes.keys }] : []);

// Return the chosen values of each field, in the order of the choice; an empty list means any value.
export function chosenOf(axes, keys) {
  const parts = keys.map((key) => partsOf(axes, key));
  return fieldsOf(axes).map((_, i) => [...new Set(parts.map((one) => one[i]))].filter((value) => value !== null));
}

// Return the keys to ask for. Args: chosen, as ``chosenOf`` returns it.
export function keysOf(axes, chosen) {
  if (chosen.every((values) => !values.length)) return [];
  if (!axes.key_fields) return chosen[0];
  const columns = chosen.map((values) => (values.length ? values.map(escaped) : ["*"]));
  return columns.reduce((begun, column) => begun.flatMap((one) => column.map((part) => [...one, part])), [[]]).map((one) => one.join("/"));
}

// Return the value that a pattern has in a field, for the keys of one value: "FR" for "FR/*".
export const valueOf = (axes, key, field) => partsOf(axes, key)[fieldsOf(axes).findIndex((one) => one.field === field)];

// Return whether a key is a pattern, which means several keys.
export const isPattern = (axes, key) => partsOf(axes, key).includes(null);

// Return the name of the chosen keys, such as "FR + DE", or "country: FR + DE, device: mobile"; empty for all keys.
// Args: most, the largest number of values of a field that are named.
export function nameOf(axes, keys, most) {
  const fields = fieldsOf(axes);
  if (fields.length < 2) return joined(keys, most);
  const chosen = chosenOf(axes, keys);
  if (keysOf(axes, chosen).length !== keys.length) return joined(keys, most); // keys from an address that are no product
  return fields.flatMap(({ field }, i) => (chosen[i].length ? [`${field}: ${joined(chosen[i], most)}`] : [])).join(", ");
}

function joined(names, most) {
  const named = names.length > most ? names.slice(0, most - 1) : names;
  return [...named, ...(named.length < names.length ? [`${names.length - named.length} more`] : [])].join(" + ");
}

const escaped = (value) => (value === "*" ? "\\*" : value.replace(/[\\/]/g, "\\$&"));

// Return a key's values, one for each field; null for any value.
function partsOf(axes, key) {
  if (!axes?.key_fields) return [key];
  return (key.match(/(?:\\.|[^\\/])+/g) ?? []).map((part) => (part === "*" ? null : part.replace(/\\(.)/g, "$1")));
}
