// Server-sent events with a key in a header, as EventSource has none. For pages in a frame, whose address has the key.

const RETRY_MS = 2000;

export class KeyedEvents extends EventTarget {
  constructor(url, headers) {
    super();
    this.readyState = EventSource.CONNECTING;
    this.stopped = new AbortController();
    this.#run(url, headers);
  }

  close() {
    this.readyState = EventSource.CLOSED;
    this.stopped.abort();
  }

  async #run(url, headers) {
    while (this.readyState !== EventSource.CLOSED) {
      try {
        const response = await fetch(url, { headers, credentials: "omit", cache: "no-store", signal: this.stopped.signal });
        if (!response.ok) return this.#end();
        this.readyState = EventSource.OPEN;
        this.onopen?.();
        await this.#read(response.body.pipeThrough(new TextDecoderStream()).getReader());
      } catch {
        if (this.stopped.signal.aborted) return undefined;
      }
      this.readyState = EventSource.CONNECTING;
      this.onerror?.();
      await new Promise((wait) => { setTimeout(wait, RETRY_MS); });
    }
    return undefined;
  }

  // The service refuses the connection, for example because the key is revoked.
  #end() {
    this.readyState = EventSource.CLOSED;
    this.onerror?.();
  }

  async #read(reader) {
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = (text + value).split("\n\n");
      text = events.pop();
      events.forEach((event) => this.#tell(event));
    }
  }

  #tell(event) {
    const fields = Object.fromEntries(event.split("\n").filter((line) => line && !line.startsWith(":")).map((line) => line.split(/: ?(.*)/s)));
    if ("data" in fields) this.dispatchEvent(new MessageEvent(fields.event ?? "message", { data: fields.data }));
  }
}
