// Functions that send requests to the service.

import { KeyedEvents } from "./keyed_events.js";

export class ApiError extends Error {
  name = "ApiError";

  constructor(line, status) {
    super(line);
    this.status = status;
  }

  // Return whether the same request may succeed if it is repeated later.
  get passing() {
    return this.status === 429 || this.status >= 500;
  }
}

let key = null; // the key of a page in a frame: its address has it behind the #, so no server and no log sees it there

// Send a key with every request from now on. Without one, the browser sends what it knows.
export function useKey(text) {
  key = text;
}

const keyed = () => (key === null ? {} : { headers: { Authorization: `Bearer ${key}` }, credentials: "omit" });

let ahead = 0; // seconds by which the service's clock is ahead of the browser's clock

// Return the time of the service's clock, in seconds since 1970.
export const serverNow = () => Date.now() / 1000 + ahead;

export async function get(path, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const search = new URLSearchParams(given.flatMap(([name, value]) => [value].flat().map((one) => [name, one])));
  const text = search.toString();
  const response = await fetch(text ? `${path}?${text}` : path, { signal, ...keyed() });
  const date = Date.parse(response.headers.get("date") ?? "");
  if (!Number.isNaN(date)) ahead = (date - Date.now()) / 1000;
  const body = await response.json();
  if (!response.ok) throw new ApiError(body.error ?? `${path} answered ${response.status}`, response.status);
  return body;
}

export const streamPath = (stream) => `/v1/streams/${encodeURIComponent(stream)}`;

// Receive every release of a stream as a server-sent event. If the connection is lost, the browser opens a new
// one and sends the id of the last event. The service continues after that event, also into the next generation of
// the stream. Args: after, the id of a release: GENERATION:SEQ. Returns a function that stops.
export function follow(stream, after, { onRelease, onState, onPrivacy, onGeneration }) {
  const events = new EventSource(`${streamPath(stream)}/events?after=${after}`);
  events.onopen = () => onState("live");
  events.onerror = () => onState(events.readyState === EventSource.CLOSED ? "closed" : "connecting");
  events.addEventListener("privacy", (event) => onPrivacy?.(JSON.parse(event.data).private));
  events.addEventListener("generation", () => onGeneration());
  events.addEventListener("release", (event) => onRelease(Number(event.lastEventId.split(":").at(-1)), event.data));
  return () => events.close();
}

// Receive which of some streams have released something, over one connection. Returns a function that stops.
export function followChanges(streams, { onChange, onState }) {
  const url = `/v1/changes?${new URLSearchParams(streams.map((stream) => ["stream", stream]))}`;
  const events = key === null ? new EventSource(url) : new KeyedEvents(url, keyed().headers);
  events.onopen = () => onState("live");
  events.onerror = () => onState(events.readyState === EventSource.CLOSED ? "closed" : "connecting");
  events.addEventListener("changed", (event) => onChange(JSON.parse(event.data)));
  return () => events.close();
}
