// Requests to the API that serves this page. What a lost session interrupts goes on when the same person has signed in
// again: nothing was done yet, and the page is loaded anew for anybody else.
import { ApiError, asApiError, type Status } from "./errors";
import { forgetProof, presentProof, PROOF_HEADER } from "./proof";
import { presentReach, proofGiven, setReach, signedIn } from "./state";

export const V1 = "/apis/enmasse.io/v1beta1";
export const USERS = "/apis/user.enmasse.io/v1beta1";
export const ADMIN = "/apis/admin.enmasse.io/v1beta2";
export const CORE = "/api/v1";

const JSON_TYPE = "application/json";

export interface Options {
  body?: unknown;
  contentType?: string;
  accept?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** A password goes along: 401 says that it is wrong, and not that nobody is signed in. */
  checksPassword?: boolean;
}

/** Makes the path of a URL; every part is escaped. */
export function path(base: string, ...parts: string[]): string {
  return [base, ...parts.map(encodeURIComponent)].join("/");
}

/** Adds what is given to a path as its query. */
export function query(base: string, parameters: Record<string, string | number | boolean | undefined | null>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") search.set(key, String(value));
  }
  const text = search.toString();
  return text ? `${base}${base.includes("?") ? "&" : "?"}${text}` : base;
}

async function refusal(response: Response): Promise<ApiError> {
  const text = await response.text();
  let status: Partial<Status> & { error?: string } = {};
  let code = response.status;
  try {
    status = JSON.parse(text) as Partial<Status> & { error?: string };
  } catch {
    // What stands between the page and the API answers in a form of its own, also when that does not answer.
    if (code === 502 || code === 504) code = 0;
  }
  // The device registry says it as Hono's does.
  const message = status.message ?? status.error ?? (text.slice(0, 300) || `${response.status} ${response.statusText}`);
  const after = status.details?.retryAfterSeconds ?? Number(response.headers.get("Retry-After") ?? NaN);
  return new ApiError(code, message, status.reason, status.details?.causes, Number.isNaN(after) ? undefined : after);
}

/** Sends one request, and returns the answer if it is a success. */
export async function send(method: string, url: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: options.accept ?? JSON_TYPE, ...options.headers };
  const proof = presentProof();
  if (proof) headers[PROOF_HEADER] = proof;
  const init: RequestInit = { method, headers, credentials: "same-origin", cache: "no-store" };
  if (options.signal) init.signal = options.signal;
  if (options.body !== undefined) {
    headers["Content-Type"] = options.contentType ?? JSON_TYPE;
    init.body = typeof options.body === "string" || options.body instanceof Blob ? options.body : JSON.stringify(options.body);
  }
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    setReach({ here: false });
    throw new ApiError(0, "The API does not answer.");
  }
  if (response.ok) {
    setReach({ here: true });
    return response;
  }
  const error = await refusal(response);
  setReach({ here: !error.away });
  if (error.code === 401 && !options.checksPassword) setReach({ signedOut: true });
  if (error.code === 403 && !error.wantsProof) setReach({ rights: presentReach().rights + 1 });
  throw error;
}

/** Like `send`, but waits for a login or a fresh proof where one is needed, and asks again. */
export async function sendSignedIn(method: string, url: string, options: Options = {}): Promise<Response> {
  for (;;) {
    try {
      return await send(method, url, options);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.code === 401 && !options.checksPassword) {
        await signedIn(options.signal);
      } else if (error.wantsProof) {
        forgetProof();
        setReach({ proving: true });
        await proofGiven(options.signal);
        if (!presentProof()) throw error;
      } else {
        throw error;
      }
    }
  }
}

export function fetchSignedIn(url: string, options: Options = {}): Promise<Response> {
  return sendSignedIn("GET", url, options);
}

export async function get<T>(url: string, signal?: AbortSignal): Promise<T> {
  return (await (await fetchSignedIn(url, { signal })).json()) as T;
}

/** Sends what changes something; the answer's `Warning` headers come along. */
export async function write<T = Status>(
  method: "POST" | "PUT" | "PATCH" | "DELETE",
  url: string,
  options: Options = {},
): Promise<{ value: T; warnings: string[] }> {
  const response = await sendSignedIn(method, url, options);
  const text = await response.text();
  const warnings = [...(response.headers.get("Warning") ?? "").matchAll(/299 - "((?:[^"\\]|\\.)*)"/g)];
  return {
    value: (text ? JSON.parse(text) : undefined) as T,
    warnings: warnings.map((match) => (match[1] ?? "").replace(/\\(.)/g, "$1")),
  };
}

export async function create<T = Status>(url: string, body: unknown): Promise<T> {
  return (await write<T>("POST", url, { body })).value;
}

export async function mergePatch<T>(url: string, body: unknown): Promise<T> {
  return (await write<T>("PATCH", url, { body, contentType: "application/merge-patch+json" })).value;
}

export async function remove(url: string): Promise<void> {
  await write("DELETE", url);
}

/** Does the same to several things: one that fails does not keep the others back. What has gone meanwhile is no failure. */
export async function each<R>(rows: R[], act: (row: R) => Promise<unknown>): Promise<void> {
  const failed: ApiError[] = [];
  for (const row of rows) {
    try {
      await act(row);
    } catch (caught) {
      const error = asApiError(caught);
      if (rows.length === 1 || error.code === 0) throw error;
      if (error.code !== 404) failed.push(error);
    }
  }
  const [first] = failed;
  if (first) throw new ApiError(first.code, `${failed.length} of ${rows.length} were refused, as: ${first.message}`, first.reason, first.causes);
}

/** Reads a stream of JSON lines, as a watch is. It ends when the API ends it. */
export async function* lines<T>(url: string, signal: AbortSignal): AsyncGenerator<T> {
  const response = await fetchSignedIn(url, { signal });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop()!;
      for (const part of parts) if (part.trim()) yield JSON.parse(part) as T;
    }
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError(0, "The connection to the API broke.");
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}
