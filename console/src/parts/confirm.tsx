// A question before anything is destroyed: it says what will be lost.
import { Button, Form, FormGroup, Modal, ModalBody, ModalFooter, ModalHeader, TextInput } from "@patternfly/react-core";
import { createContext, type ReactElement, type ReactNode, useCallback, useContext, useState } from "react";
import { type ApiError, asApiError } from "../api/errors";
import { Refusal } from "./problem";

export interface Question {
  title: ReactNode;
  /** What will be lost, in words. */
  loses: ReactNode;
  /** The verb on the button. */
  action: string;
  /** What is done; the dialog shows what went wrong. */
  run: () => Promise<void>;
  /** What has to be typed before; for what cannot be undone and takes much with it. */
  type?: string;
}

const MAX_LISTED = 20;

/** Names, as many as a person reads. */
export function Listed({ names }: { names: string[] }): ReactElement {
  return (
    <>
      {names.slice(0, MAX_LISTED).map((name, index) => (
        <span key={name}>
          {index > 0 && ", "}
          <bdi>{name}</bdi>
        </span>
      ))}
      {names.length > MAX_LISTED && ` and ${names.length - MAX_LISTED} more`}
    </>
  );
}

const Ask = createContext<(question: Question) => void>(() => undefined);

/** Returns what asks a question in a dialog. */
export function useConfirm(): (question: Question) => void {
  return useContext(Ask);
}

export function Confirming({ children }: { children: ReactNode }): ReactElement {
  const [question, setQuestion] = useState<Question>();
  const ask = useCallback((next: Question) => setQuestion(next), []);
  return (
    <Ask.Provider value={ask}>
      {children}
      {question && <ConfirmDialog question={question} close={() => setQuestion(undefined)} />}
    </Ask.Provider>
  );
}

function ConfirmDialog({ question, close }: { question: Question; close: () => void }): ReactElement {
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const run = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await question.run();
      close();
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="confirm-title" aria-describedby="confirm-body">
      <ModalHeader title={question.title} titleIconVariant="warning" labelId="confirm-title" />
      <ModalBody id="confirm-body">
        <div>{question.loses}</div>
        {question.type && (
          <Form
            className="em-above"
            onSubmit={(event) => {
              event.preventDefault();
              if (typed === question.type) void run();
            }}
          >
            <FormGroup label={<>Type <bdi>{question.type}</bdi> to go on</>} fieldId="confirm-name">
              <TextInput id="confirm-name" value={typed} onChange={(_, value) => setTyped(value)} autoComplete="off" />
            </FormGroup>
          </Form>
        )}
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button
          variant="danger"
          onClick={() => void run()}
          isLoading={busy}
          isDisabled={busy || (question.type !== undefined && typed !== question.type)}
        >
          {question.action}
        </Button>
        <Button variant="link" onClick={close}>
          Keep it
        </Button>
      </ModalFooter>
    </Modal>
  );
}
