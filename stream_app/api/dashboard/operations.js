// Makes the card of one route: what it answers, an example to copy or to run here, its parameters, fields and errors.

import { commandOf } from "./examples.js";
import { make } from "./elements.js";
import { grid } from "./tables.js";

const MOST_SHOWN = 6000; // characters of an answer

export class Operation {
  // Args: spec, the OpenAPI document; speak(text), passes a text to screen readers.
  constructor(spec, path, method, operation, speak) {
    Object.assign(this, { spec, path, method, operation, speak });
    this.name = `${method.toUpperCase()} ${path}`;
    this.id = `${method}${path.replace(/[{}]/g, "").replace(/\W+/g, "-")}`;
    this.key = Boolean((operation.security ?? spec.security)?.length);
    this.example = make("div", { className: "example" });
    this.element = make("section", { className: "card", id: this.id, "aria-labelledby": `${this.id}-name` },
      make("h3", { id: `${this.id}-name` }, make("span", { className: "method" }, method.toUpperCase()), " ", make("code", {}, path)),
      ...paragraphs(operation.description ?? operation.summary ?? ""),
      this.example, ...this.#tables());
  }

  // Show an example, as exampleOf returns it.
  show(example) {
    if (example.lacks) {
      this.example.replaceChildren(make("p", { className: "muted" }, `No example: ${example.lacks}.`));
      return;
    }
    const { also, endless } = example;
    this.example.replaceChildren(
      this.#command("", commandOf(example, this.key), endless ? null : example.address),
      ...(also ? [this.#command(` ${also[0]}`, commandOf(example, this.key, also[1]), null)] : []),
      ...(endless ? [make("p", { className: "muted" }, "The command goes on until you press Ctrl-C.")] : []));
  }

  #command(how, command, address) {
    const code = make("code", {}, command);
    const copy = make("button", { type: "button", "aria-label": `Copy the command of ${this.name}${how}` }, "Copy");
    copy.addEventListener("click", () => this.#copy(copy, code));
    const buttons = make("div", { className: "saving" }, copy);
    const host = make("div", { className: "command" },
      make("pre", { tabIndex: 0, role: "region", "aria-label": `Command of ${this.name}${how}` }, code), buttons);
    if (address) buttons.append(this.#runner(host, address));
    return host;
  }

  // Copy the command. A page that is not on localhost and not encrypted may not write to the clipboard; it selects the text.
  async #copy(button, code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      this.speak("The command is copied.");
    } catch {
      window.getSelection().selectAllChildren(code);
      this.speak("The command is selected. Copy it with the keyboard.");
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }

  #runner(host, address) {
    const run = make("button", { type: "button", "aria-label": `Show the answer of ${this.name}` }, "Answer");
    run.addEventListener("click", async () => {
      host.querySelector(".answer")?.remove();
      run.disabled = true;
      const shown = await answerOf(address);
      run.disabled = false;
      run.focus();
      host.append(make("pre", { className: "answer", tabIndex: 0, role: "region", "aria-label": `Answer of ${this.name}` }, shown));
      this.speak(`The answer begins: ${shown.split("\n", 1)[0]}`);
    });
    return run;
  }

  #tables() {
    const { parameters = [], responses } = this.operation;
    const answer = responses["200"]?.content?.["application/json"]?.schema;
    const fields = answer ? this.#fields(answer) : [];
    const others = Object.entries(responses).filter(([status]) => status !== "200");
    return [
      this.#folded("Parameters", ["Name", "Where", "Type", "Default", "Meaning"], parameters.map(parameterRow)),
      this.#folded("Fields of the answer", ["Field", "Type", "Meaning"], fields),
      this.#folded("Errors", ["Status", "When"], others.map(([status, one]) => [status, one.description])),
    ].filter(Boolean);
  }

  #folded(title, heads, rows) {
    if (!rows.length) return null;
    const table = make("div", { tabIndex: 0, role: "region", "aria-label": `${title}: ${this.name}` }, grid(title, heads, rows));
    return make("details", { className: "numbers" }, make("summary", {}, `${title} (${rows.length})`), table);
  }

  #fields(schema) {
    const found = schema.$ref ? this.spec.components.schemas[schema.$ref.split("/").pop()] : schema;
    return Object.entries(found.properties ?? {}).map(([name, field]) => [name, typeOf(field), field.description ?? ""]);
  }
}

export const paragraphs = (text) => text.trim().split(/\n\s*\n/).filter(Boolean).map((part) => make("p", {}, ...withCode(part)));

// Return the nodes of a text in which `words` between backticks are code.
const withCode = (text) => text.replaceAll("``", "`").split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));

// Return the status and the beginning of an answer, as text.
async function answerOf(address) {
  try {
    const response = await fetch(address);
    const text = await response.text();
    const shown = response.headers.get("content-type")?.includes("json") ? JSON.stringify(JSON.parse(text), null, 1) : text;
    const rest = shown.length > MOST_SHOWN ? `\n... ${(shown.length - MOST_SHOWN).toLocaleString("en")} more characters` : "";
    return `${response.status} ${response.statusText}\n${shown.slice(0, MOST_SHOWN)}${rest}`;
  } catch {
    return "The service does not answer. Is it running?";
  }
}

function parameterRow({ name, in: place, required, schema, description }) {
  const initial = required ? "required" : schema.default ?? "";
  return [name, place, `${typeOf(schema)}${limitsOf(schema)}`, String(initial), description ?? schema.description ?? ""];
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
