// Makes the page /docs from /openapi.json: every address, its parameters and its answer.

import { get } from "./api.js";
import { grid } from "./tables.js";

const spec = await get("/openapi.json");
const resolve = (schema) => (schema?.$ref ? spec.components.schemas[schema.$ref.split("/").pop()] : schema ?? {});

function make(name, text, className = "") {
  return Object.assign(document.createElement(name), { textContent: text, className });
}

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return options.map(typeOf).filter((one) => one !== "null").join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.const !== undefined) return String(schema.const);
  if (schema.type === "array") return `list of ${schema.items ? typeOf(schema.items) : typeOf(schema.prefixItems[0])}`;
  return schema.type ?? "any";
}

function limitsOf(schema) {
  const bounds = [schema, ...(schema.anyOf ?? [])];
  const least = bounds.map((one) => one.minimum).find((one) => one !== undefined);
  const most = bounds.map((one) => one.maximum).find((one) => one !== undefined);
  if (least === undefined && most === undefined) return "";
  return most === undefined ? ` (at least ${least})` : ` (${least} to ${most})`;
}

function parameterRow({ name, in: place, required, schema, description }) {
  const initial = required ? "required" : schema.default ?? "";
  return [name, place, `${typeOf(schema)}${limitsOf(schema)}`, String(initial), description ?? schema.description ?? ""];
}

function fieldRows(schema) {
  return Object.entries(resolve(schema).properties ?? {}).map(([name, field]) => [name, typeOf(field), field.description ?? ""]);
}

function card(path, method, operation) {
  const section = make("section", "", "card");
  section.tabIndex = 0; // makes wide tables scrollable with the keyboard
  section.setAttribute("aria-label", `${method.toUpperCase()} ${path}`);
  const head = document.createElement("h2");
  head.append(make("span", method.toUpperCase(), "method"), make("code", path));
  section.append(head, make("p", operation.description ?? operation.summary ?? ""));
  if (operation.parameters?.length) {
    section.append(make("h3", "Parameters"), grid("", ["Name", "Where", "Type", "Default", "Meaning"], operation.parameters.map(parameterRow)));
  }
  const answer = operation.responses["200"]?.content?.["application/json"]?.schema;
  const fields = answer ? fieldRows(answer) : [];
  if (fields.length) section.append(make("h3", "Answer"), grid("", ["Field", "Type", "Meaning"], fields));
  const others = Object.entries(operation.responses).filter(([status]) => status !== "200");
  if (others.length) section.append(make("h3", "Errors"), grid("", ["Status", "When"], others.map(([status, one]) => [status, one.description])));
  return section;
}

document.getElementById("about").replaceChildren(...spec.info.description.trim().split("\n\n").map((text) => make("p", text.replaceAll("`", ""))));
document.getElementById("operations").replaceChildren(
  ...Object.entries(spec.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => card(path, method, operation))),
);
