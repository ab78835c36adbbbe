// Makes the page /docs from /openapi.json: a table of contents, and a card for each route with an example that works.

import { get, streamPath } from "./api.js";
import { at, make, say } from "./elements.js";
import { exampleOf, sufficeForAll } from "./examples.js";
import { watchTheme } from "./frame.js";
import { Operation, paragraphs } from "./operations.js";
import { failure } from "./words.js";

const MOST_STREAMS = 60, TOGETHER = 6; // of which the page reads what they can answer, and how many at a time
const WIDE = "(min-width: 980px)";

// Return the groups of the document, each with its operations, in its order: [{name, description, operations}].
function groupsOf(spec) {
  const speak = (text) => say(at("spoken"), text);
  const operations = Object.entries(spec.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => new Operation(spec, path, method, operation, speak)));
  const named = spec.tags.map(({ name, description }) => ({ name, description, operations: operations.filter(({ operation }) => operation.tags?.[0] === name) }));
  const others = operations.filter(({ operation }) => !spec.tags.some(({ name }) => name === operation.tags?.[0]));
  return [...named, { name: "More", description: "", operations: others }].filter((group) => group.operations.length);
}

function contents(groups) {
  const list = ({ name, operations }) => [
    make("p", { className: "group" }, make("a", { href: `#${name.toLowerCase()}` }, name)),
    make("ul", {}, ...operations.map(({ id, path }) => make("li", {}, make("a", { href: `#${id}` }, short(path))))),
  ];
  return make("details", { open: window.matchMedia(WIDE).matches }, make("summary", {}, "Routes"), ...groups.flatMap(list));
}

// Return a path without the part that nearly all paths have, for the table of contents.
const short = (path) => path.replace("/v1/streams/{stream}/", "…/");

// Return what a reader must know before the first question. Args: key, whether the service asks for one.
function before({ info }, key) {
  const words = key
    ? ["This service asks for a key. Give yours to your shell once; the commands below read it from there, and no page shows it: ",
      make("code", {}, "read -rs PRIVATE_COUNTS_KEY")]
    : ["This service asks you for no key. Each command below works as it is pasted into a shell."];
  return [...paragraphs(info.description), make("p", { id: "key-words" }, ...words)];
}

// Return details of streams, the chosen one first, until there is one for every example.
async function detailsOf(streams, chosen) {
  const names = [chosen, ...streams.map(({ stream }) => stream).filter((name) => name !== chosen)].slice(0, MOST_STREAMS);
  const details = [];
  for (let first = 0; first < names.length && !sufficeForAll(details); first += TOGETHER) {
    const found = await Promise.allSettled(names.slice(first, first + TOGETHER).map((name) => get(streamPath(name))));
    details.push(...found.filter(({ status }) => status === "fulfilled").map(({ value }) => value));
  }
  return details;
}

async function start() {
  const [spec, { streams }, { boards }] = await Promise.all([get("/openapi.json"), get("/v1/streams"), get("/v1/boards")]);
  const groups = groupsOf(spec);
  at("contents").replaceChildren(contents(groups));
  at("about").replaceChildren(...before(spec, Boolean(spec.security?.length)));
  at("operations").replaceChildren(...groups.flatMap(({ name, description, operations }) => [
    make("h2", { id: name.toLowerCase() }, name), ...paragraphs(description), ...operations.map(({ element }) => element)]));
  await showExamples(groups, streams, boards.map(({ board }) => board));
  if (window.location.hash) document.getElementById(window.location.hash.slice(1))?.scrollIntoView();
}

async function showExamples(groups, streams, boards) {
  const released = streams.find(({ running }) => running) ?? streams[0];
  const select = at("stream-select");
  select.replaceChildren(...streams.map(({ stream, title }) => new Option(title, stream, false, stream === released?.stream)));
  at("picker").hidden = streams.length < 2;
  const show = async () => {
    const details = streams.length ? await detailsOf(streams, select.value) : [];
    groups.forEach(({ operations }) => operations.forEach((one) => one.show(exampleOf(one.path, details, boards))));
    at("operations").dataset.examples = select.value || "none";
  };
  select.addEventListener("change", show);
  await show();
}

watchTheme(() => {});
start().catch((error) => {
  say(at("about"), `${failure(error)} This page tries again every 5 seconds.`);
  setTimeout(() => window.location.reload(), 5000);
});
