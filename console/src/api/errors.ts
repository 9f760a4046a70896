// What the API answers when it refuses: a Status of Kubernetes.

export interface Cause {
  field?: string;
  message?: string;
  reason?: string;
}

export interface Status {
  kind: "Status";
  code: number;
  reason?: string;
  message?: string;
  details?: { causes?: Cause[]; count?: number; retryAfterSeconds?: number; kind?: string; name?: string };
}

/** An answer that is no success; `code` 0 stands for an API that cannot be reached. */
export class ApiError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly reason = "",
    readonly causes: Cause[] = [],
    readonly retryAfter?: number,
  ) {
    super(message);
    this.name = "ApiError";
  }

  get away(): boolean {
    return this.code === 0;
  }

  /** What was asked for outlasts the session, and asks for a fresh proof of who is here. */
  get wantsProof(): boolean {
    return this.causes.some((cause) => cause.reason === "FreshProofRequired");
  }
}

export function asApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, error instanceof Error ? error.message : String(error));
}
