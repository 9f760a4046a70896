import { Alert, List, ListItem } from "@patternfly/react-core";
import type { ReactElement, ReactNode } from "react";
import { type ApiError } from "../api/errors";

const TITLES: Record<number, string> = {
  0: "The API does not answer",
  403: "You do not have the right to do this",
  404: "There is no such thing (any more)",
  409: "Somebody else changed it meanwhile",
  422: "This cannot be",
  429: "Too many requests",
  507: "The disk is full",
};

/** An answer of the API that is no success, in words, with the fields that it names. */
export function Refusal({ error, title, children }: { error: ApiError; title?: string; children?: ReactNode }): ReactElement {
  const fields = error.causes.filter((cause) => cause.message && !error.message.includes(cause.message));
  const again = error.retryAfter === undefined ? "" : ` Try again in ${error.retryAfter} s.`;
  return (
    <Alert isInline variant="danger" title={title ?? TITLES[error.code] ?? "That did not work"} className="em-refusal">
      <p>
        {error.message}
        {again}
      </p>
      {fields.length > 0 && (
        <List>
          {fields.map((cause) => (
            <ListItem key={`${cause.field}${cause.message}`}>
              {cause.field ? <code>{cause.field}</code> : null} {cause.message}
            </ListItem>
          ))}
        </List>
      )}
      {children}
    </Alert>
  );
}

/** A sentence in which commands stand between backticks. */
export function Words({ text }: { text: string }): ReactElement {
  return <>{text.split("`").map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}</>;
}
