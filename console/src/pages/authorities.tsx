// The authorities of a project's devices: which are proved, and the proof that the tenant has the key of one.
import { Button, Form, FormGroup, FormHelperText, HelperText, HelperTextItem, Modal, ModalBody, ModalFooter, ModalHeader, TextArea } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type FormEvent, type ReactElement, useEffect, useState } from "react";
import { write } from "../api/client";
import { type Authority, registryOf } from "../api/devices";
import { type ApiError, asApiError } from "../api/errors";
import { useGet } from "../api/live";
import { useRights } from "../api/rights";
import { Code, download, shell } from "../parts/code";
import { useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { dateTime } from "../parts/format";
import { Refusal } from "../parts/problem";
import { ActionsMenu } from "../parts/table";
import type { Project } from "./commands";

const PROOFS: Record<string, string> = { signed: "its key has signed", vouched: "an operator has vouched", presumed: "it was there before proofs" };

/** The authorities of a project's tenant, and what may be done with them. */
export function Authorities({ project }: { project: Project }): ReactElement {
  const rights = useRights(project.space.namespace);
  const confirm = useConfirm();
  const registry = registryOf(project.tenant);
  const { data, error, again } = useGet<{ authorities: Authority[] }>(registry.authorities());
  const [proved, setProved] = useState<Authority>();
  if (error) return <Refusal error={error} />;
  if (!data) return <></>;
  if (!data.authorities.length) {
    return (
      <Teach title="No authority yet">
        A device may have a certificate instead of a password. Write the authority that issues them into <code>trusted-ca</code> of the tenant, such
        as by <code>enmasse iot tenant update {project.tenant} -f tenant.yaml</code>.
      </Teach>
    );
  }
  const actionsOf = (one: Authority) => [
    {
      title: "Prove",
      refused: one.proof && one.proof !== "presumed" ? "It is proved" : rights.may("update", "tenants") ? undefined : "You may not change the tenant",
      run: () => setProved(one),
    },
    {
      title: "Vouch for it",
      refused: rights.may("create", "tenants/vouch") ? undefined : "That is for operators",
      run: () =>
        confirm({
          title: <>Vouch for <bdi>{one["subject-dn"]}</bdi>?</>,
          loses: "Its certificates then prove devices of this tenant wherever they come in. Make sure that the tenant has its key.",
          action: "Vouch",
          run: async () => {
            await write("POST", registry.authorities(one.id, "vouch"), {});
            again();
          },
        }),
    },
  ];
  return (
    <>
      <Table aria-label="Authorities" variant="compact">
        <Thead>
          <Tr>
            <Th>Subject</Th>
            <Th>Proof</Th>
            <Th>Counts</Th>
            <Th>Ends</Th>
            <Th screenReaderText="Actions" />
          </Tr>
        </Thead>
        <Tbody>
          {data.authorities.map((one) => (
            <Tr key={one.id}>
              <Td dataLabel="Subject" className="em-wrap"><bdi>{one["subject-dn"]}</bdi></Td>
              <Td dataLabel="Proof">{one.proof ? PROOFS[one.proof] ?? one.proof : "none"}</Td>
              <Td dataLabel="Counts">
                {one.counts ? "everywhere" : "where a device names the tenant (SNI)"}
                {one.problem && <div className="em-figure-below">It {one.problem}.</div>}
              </Td>
              <Td dataLabel="Ends">{one["not-after"] && dateTime(one["not-after"])}</Td>
              <Td isActionCell><ActionsMenu actions={actionsOf(one)} /></Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {proved && <Prove project={project} authority={proved} close={() => setProved(undefined)} done={() => { setProved(undefined); again(); }} />}
    </>
  );
}

function Prove({ project, authority, close, done }: { project: Project; authority: Authority; close: () => void; done: () => void }): ReactElement {
  const registry = registryOf(project.tenant);
  const [nonce, setNonce] = useState("");
  const [signature, setSignature] = useState("");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    write<{ nonce: string }>("POST", registry.authorities(authority.id, "nonce"), {}).then(
      ({ value }) => setNonce(value.nonce),
      (caught) => setError(asApiError(caught)),
    );
    // One nonce for each time that this is opened.
    // eslint-disable-next-line
  }, [authority.id]);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await write("POST", registry.authorities(authority.id, "proof"), { body: { nonce, signature: signature.replace(/\s/g, "") } });
      done();
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  const lines = ["openssl dgst -sha256 -sign ca.key nonce.txt | base64 -w 0", "# of Ed25519:", "openssl pkeyutl -sign -rawin -inkey ca.key -in nonce.txt | base64 -w 0"];
  const command = ["enmasse", "iot", "ca", "prove", project.tenant, authority.id, "--key", "ca.key"].map(shell).join(" ");
  return (
    <Modal isOpen variant="medium" onClose={close} aria-labelledby="prove-title">
      <ModalHeader title={<>Prove to have the key of <bdi>{authority["subject-dn"]}</bdi></>} labelId="prove-title" />
      <ModalBody>
        <p>Where the key lies, sign this nonce with it, every byte; the key stays there. On this machine one command does all of it:</p>
        <Code text={command} />
        <Form id="prove-form" onSubmit={(event) => void submit(event)} className="em-above">
          <FormGroup label="Nonce" fieldId="prove-nonce">
            <TextArea id="prove-nonce" value={nonce} readOnlyVariant="default" rows={6} aria-label="Nonce" />
            <Button variant="link" isInline isDisabled={!nonce} onClick={() => download("nonce.txt", nonce)}>
              Download nonce.txt
            </Button>
          </FormGroup>
          <Code text={lines.join("\n")} />
          <FormGroup label="Signature in base64" fieldId="prove-signature" isRequired>
            <TextArea id="prove-signature" value={signature} onChange={(_, value) => setSignature(value)} rows={3} isRequired />
            <FormHelperText>
              <HelperText>
                <HelperTextItem>Of RSA or ECDSA with SHA-256, SHA-384 or SHA-512, or of Ed25519.</HelperTextItem>
              </HelperText>
            </FormHelperText>
          </FormGroup>
        </Form>
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="prove-form" isLoading={busy} isDisabled={busy || !nonce || !signature.trim()}>
          Prove
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  );
}
