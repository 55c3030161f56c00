// The gateway over HTTP: whether it may be used, and what it says of itself.

export class Gateway {
  // `base` is the page's own address; `key` says how to be let in.
  constructor(base, key, fetcher = (...args) => fetch(...args)) {
    this.base = base;
    this.key = key;
    this.fetcher = fetcher;
  }

  // { state: "ready", status, models }, or why not: "key", "loading", "draining", "unreachable",
  // the last with a `message`.
  async look() {
    try {
      const status = await this.#get("v1/status");
      if (!status.ok) return refusal(status);
      const models = await this.#get("v1/models");
      if (!models.ok) return refusal(models);
      return { state: "ready", status: status.body, models: models.body.data };
    } catch {
      return { state: "unreachable", message: "The gateway does not answer." };
    }
  }

  // The status alone, null where there is none now.
  async status() {
    try {
      const { ok, body } = await this.#get("v1/status");
      return ok ? body : null;
    } catch {
      return null;
    }
  }

  async #get(path) {
    const headers = this.key.headers();
    const response = await this.fetcher(new URL(path, this.base), { headers, cache: "no-store" });
    return { ok: response.ok, code: response.status, body: await response.json() };
  }
}

function refusal({ code, body }) {
  const error = body.error ?? {};
  if (code === 401) return { state: "key" };
  if (code === 503) return { state: error.code === "draining" ? "draining" : "loading" };
  return { state: "unreachable", message: error.message ?? `The gateway answers ${code}.` };
}
