// The login, over whatever page somebody was at: what they were about to do stays there.
import { Alert, Button, Content, Form, FormGroup, Modal, ModalBody, ModalFooter, ModalHeader, TextInput } from "@patternfly/react-core";
import { type FormEvent, type ReactElement, useEffect, useState } from "react";
import { send } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { goOn } from "../api/person";
import { useReach } from "../api/state";
import type { ConsoleConfig } from "../api/types";
import { Refusal } from "../parts/problem";

export function LoginDialog({ config }: { config: ConsoleConfig | undefined }): ReactElement | null {
  const { signedOut, person } = useReach();
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const [nobody, setNobody] = useState(false);
  // Whoever signs in within another tab, by a link or at a provider, comes back to this one.
  useEffect(() => {
    if (!signedOut) return;
    const look = () => document.hidden || void goOn();
    window.addEventListener("focus", look);
    document.addEventListener("visibilitychange", look);
    return () => {
      window.removeEventListener("focus", look);
      document.removeEventListener("visibilitychange", look);
    };
  }, [signedOut]);
  // A dialog without anything to press would lock the page.
  if (!signedOut || !config) return null;

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await send("POST", "/login", { body: { username, password } });
      setPassword("");
      await goOn();
    } catch (caught) {
      setError(asApiError(caught));
    } finally {
      setBusy(false);
    }
  };
  const { login } = config;
  return (
    <Modal isOpen variant="small" aria-labelledby="login-title" className="em-login">
      <ModalHeader
        title={person ? "Sign in again" : "Sign in"}
        labelId="login-title"
        description={person && <>The session of <bdi>{person}</bdi> is over. What you were doing goes on when you are back; somebody else begins anew.</>}
      />
      <ModalBody>
        {login.accounts && (
          <Form id="login-form" onSubmit={(event) => void submit(event)}>
            <FormGroup label="Account" fieldId="login-name" isRequired>
              <TextInput id="login-name" value={username} onChange={(_, value) => setUsername(value)} autoComplete="username" autoFocus isRequired />
            </FormGroup>
            <FormGroup label="Password" fieldId="login-password" isRequired>
              <TextInput id="login-password" type="password" value={password} onChange={(_, value) => setPassword(value)} autoComplete="current-password" isRequired />
            </FormGroup>
            {error && (error.code === 401 ? <Alert isInline variant="danger" title="The name or the password is not right." /> : <Refusal error={error} />)}
          </Form>
        )}
        {!login.accounts && !login.oidc && (
          <Content>
            <code>enmasse console</code>, on the machine where the installation runs, opens a session; so does the link that{" "}
            <code>enmasse up</code> printed. {person && "Come back here afterwards."}
          </Content>
        )}
        {nobody && <Alert isInline variant="warning" title="Nobody has signed in yet." role="status" className="em-above" />}
      </ModalBody>
      <ModalFooter>
        {login.accounts && (
          <Button type="submit" form="login-form" isLoading={busy} isDisabled={busy || !username || !password}>
            Sign in
          </Button>
        )}
        {login.oidc && (
          <Button component="a" variant={login.accounts ? "secondary" : "primary"} href="/login/oidc" target={person ? "_blank" : undefined} onClick={keepPlace}>
            Sign in with {login.oidc}
          </Button>
        )}
        {(!login.accounts || (login.oidc && person)) && <Button variant="link" onClick={() => void goOn().then((found) => setNobody(!found))}>Go on</Button>}
      </ModalFooter>
    </Modal>
  );
}

const PLACE = "enmasse.place";

/** Remembers where somebody was who leaves for a provider's pages. */
function keepPlace(): void {
  sessionStorage.setItem(PLACE, window.location.pathname + window.location.search);
}

/** The path within the console that somebody left for a provider's pages, once. */
export function takePlace(): string | undefined {
  const place = sessionStorage.getItem(PLACE);
  sessionStorage.removeItem(PLACE);
  return place?.startsWith("/console/") && window.location.pathname === "/console/" ? place.slice("/console".length) : undefined;
}
