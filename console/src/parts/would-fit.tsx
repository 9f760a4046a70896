import { Alert } from "@patternfly/react-core";
import { type ReactElement, useEffect, useState } from "react";
import { query, write } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import type { ReadyStatus, Resource } from "../api/types";
import { Refusal } from "./problem";

/** What a dry run says of an object that is about to be created. */
export function WouldFit<T extends Resource & { status?: ReadyStatus }>({ url, manifest }: { url: string; manifest: T }): ReactElement | null {
  const [answer, setAnswer] = useState<{ found?: T; warnings?: string[]; error?: ApiError }>();
  const text = JSON.stringify(manifest);
  useEffect(() => {
    let gone = false;
    write<T>("POST", query(url, { dryRun: "All" }), { body: text }).then(
      ({ value, warnings }) => !gone && setAnswer({ found: value, warnings }),
      (error: unknown) => !gone && setAnswer({ error: asApiError(error) }),
    );
    return () => {
      gone = true;
    };
  }, [url, text]);
  if (!answer) return null;
  if (answer.error) return <Refusal error={answer.error} />;
  const scheduled = answer.found?.status?.conditions?.find((condition) => condition.type === "Scheduled");
  const fits = scheduled?.status !== "False";
  return (
    <>
      {scheduled && (
        <Alert isInline isPlain variant={fits ? "success" : "warning"} title={fits ? "There is room for it" : "It would have to wait"} className="em-above">
          {scheduled.message}
        </Alert>
      )}
      {answer.warnings?.map((warning) => <Alert key={warning} isInline isPlain variant="warning" title={warning} />)}
    </>
  );
}
