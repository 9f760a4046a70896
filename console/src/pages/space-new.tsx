import {
  Alert,
  Content,
  Form,
  FormGroup,
  FormHelperText,
  HelperText,
  HelperTextItem,
  Radio,
  TextInput,
  Title,
  Wizard,
  WizardStep,
} from "@patternfly/react-core";
import { type ReactElement, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { CORE, create, path, V1 } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useGet } from "../api/live";
import { useRights } from "../api/rights";
import type { AddressSpace, AddressSpaceSchema, Objects, Resource } from "../api/types";
import { spaceOf } from "../app/space";
import { Amounts, shell } from "../parts/code";
import { Facts } from "../parts/facts";
import { limits } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { WouldFit } from "../parts/would-fit";

const NAME = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const PROTOCOLS = ["AMQPS", "AMQP-WSS"];
const CERTIFICATES: Record<string, string> = {
  selfsigned: "Issued by the installation's authority",
  wildcard: "The operator's",
  certBundle: "Your own, uploaded",
  secret: "Your own, in a Secret of the namespace",
};
const AUTHENTICATION: Record<string, string> = {
  "standard-authservice": "Users of its own, with passwords or certificates",
  "none-authservice": "Everybody on this machine, without a password",
};

interface Choice {
  namespace: string;
  name: string;
  type: string;
  plan: string;
  authentication: string;
  customise: boolean;
  endpoints: string[];
  certificate: string;
  tlsCert: string;
  tlsKey: string;
  secretName: string;
  routeHost: string;
  port: string;
}

/** The object that the choices amount to. `tlsKey` is what it has of an uploaded private key: in base64, or what is shown instead. */
function spaceManifest(choice: Choice, tlsKey = btoa(choice.tlsKey)): AddressSpace {
  const cert = {
    provider: choice.certificate === "secret" ? "certBundle" : choice.certificate,
    ...(choice.certificate === "certBundle" ? { tlsCert: btoa(choice.tlsCert), tlsKey } : {}),
    ...(choice.certificate === "secret" ? { secretName: choice.secretName } : {}),
  };
  const endpoints = choice.endpoints.map((protocol, index) => ({
    name: protocol === "AMQPS" ? "messaging" : "messaging-wss",
    service: "messaging",
    cert,
    // All protocols are spoken at it, and a space has one.
    ...(choice.port && index === 0 ? { port: Number(choice.port) } : {}),
    ...(choice.routeHost
      ? { expose: { type: "route", routeServicePort: protocol === "AMQPS" ? "amqps" : "https", routeTlsTermination: "passthrough", routeHost: choice.routeHost } }
      : {}),
  }));
  return {
    apiVersion: "enmasse.io/v1beta1",
    kind: "AddressSpace",
    metadata: { name: choice.name, namespace: choice.namespace },
    spec: {
      type: choice.type,
      ...(choice.plan ? { plan: choice.plan } : {}),
      authenticationService: { name: choice.authentication },
      ...(choice.customise ? { endpoints } : {}),
    },
  };
}

function command(choice: Choice): string {
  if (choice.customise) return "enmasse apply -f manifest.yaml";
  const words = ["enmasse", "create", "space", choice.name, "--type", choice.type];
  if (choice.plan) words.push("--plan", choice.plan);
  words.push("--authentication", choice.authentication);
  if (choice.namespace !== "default") words.push("--namespace", choice.namespace);
  return words.map(shell).join(" ");
}

export default function NewSpacePage(): ReactElement {
  const navigate = useNavigate();
  const schemas = useGet<Objects<AddressSpaceSchema>>(`${V1}/addressspaceschemas`);
  const rights = useRights();
  const namespaces = useGet<Objects<Resource>>(rights.may("list", "namespaces") ? `${CORE}/namespaces` : null);
  const [error, setError] = useState<ApiError>();
  const [search] = useSearchParams();
  const [choice, setChoice] = useState<Choice>({
    namespace: search.get("namespace") ?? "default",
    name: "",
    type: "standard",
    plan: "",
    authentication: "standard-authservice",
    customise: false,
    endpoints: PROTOCOLS,
    certificate: "selfsigned",
    tlsCert: "",
    tlsKey: "",
    secretName: "",
    routeHost: "",
    port: "",
  });
  const change = (changes: Partial<Choice>) => setChoice((before) => ({ ...before, ...changes }));
  const schema = schemas.data?.items.find((item) => item.metadata.name === choice.type);
  const plans = schema?.spec.plans ?? [];
  const plan = plans.find((item) => item.name === choice.plan) ?? plans[0];
  const named = NAME.test(choice.name);
  const complete = { ...choice, plan: plan?.name ?? "" };
  const own = choice.customise && choice.certificate === "certBundle";
  const lacksSecret = choice.certificate === "secret" && !choice.secretName;
  const isPort = choice.port === "" || (/^[0-9]+$/.test(choice.port) && Number(choice.port) >= 1 && Number(choice.port) <= 65535);
  const allowed = useRights(choice.namespace);
  const refused = allowed.known && !allowed.may("create", "addressspaces") ? `You may not create spaces in the namespace ${choice.namespace}.` : undefined;

  const save = async () => {
    setError(undefined);
    try {
      await create(path(`${V1}/namespaces`, choice.namespace, "addressspaces"), spaceManifest(complete));
      void navigate(`${spaceOf(choice.namespace, choice.name).to}/addresses`);
    } catch (caught) {
      setError(asApiError(caught));
    }
  };
  return (
    <PageFrame title="Create a space" trail={[{ title: "Spaces", to: "/spaces" }]}>
      {schemas.error && <Refusal error={schemas.error} />}
      <Wizard className="em-wizard" onClose={() => void navigate("/spaces")} onSave={() => void save()} isVisitRequired>
        <WizardStep name="Type and plan" id="type">
          <Form onSubmit={(event) => event.preventDefault()}>
            <FormGroup label="Type" role="radiogroup" fieldId="type">
              {(schemas.data?.items ?? []).map((item) => (
                <Radio
                  key={item.metadata.name}
                  id={`type-${item.metadata.name}`}
                  name="type"
                  label={item.metadata.name}
                  description={item.spec.description}
                  isChecked={choice.type === item.metadata.name}
                  onChange={() => change({ type: item.metadata.name, plan: "" })}
                />
              ))}
            </FormGroup>
            <FormGroup label="Plan" role="radiogroup" fieldId="plan">
              {plans.map((item) => (
                <Radio
                  key={item.name}
                  id={`plan-${item.name}`}
                  name="plan"
                  label={item.displayName ?? item.name}
                  description={`${item.description ?? ""} ${limits(item.limits)}`.trim()}
                  isChecked={plan?.name === item.name}
                  onChange={() => change({ plan: item.name })}
                />
              ))}
            </FormGroup>
          </Form>
        </WizardStep>
        <WizardStep name="Name" id="name" footer={{ isNextDisabled: !named || !choice.namespace || refused !== undefined }}>
          <Form onSubmit={(event) => event.preventDefault()}>
            <FormGroup label="Namespace" fieldId="namespace" isRequired>
              <TextInput id="namespace" list="namespaces" value={choice.namespace} onChange={(_, value) => change({ namespace: value })} validated={refused ? "error" : "default"} isRequired autoComplete="off" />
              <datalist id="namespaces">{namespaces.data?.items.map((item) => <option key={item.metadata.name} value={item.metadata.name} />)}</datalist>
              {refused && (
                <FormHelperText>
                  <HelperText>
                    <HelperTextItem variant="error">{refused}</HelperTextItem>
                  </HelperText>
                </FormHelperText>
              )}
            </FormGroup>
            <FormGroup label="Name" fieldId="space-name" isRequired>
              <TextInput id="space-name" value={choice.name} onChange={(_, value) => change({ name: value })} validated={choice.name && !named ? "error" : "default"} isRequired autoComplete="off" autoFocus />
              <FormHelperText>
                <HelperText>
                  <HelperTextItem variant={choice.name && !named ? "error" : "default"}>Lower-case letters, digits, and - within.</HelperTextItem>
                </HelperText>
              </FormHelperText>
            </FormGroup>
            <FormGroup label="Who comes in" role="radiogroup" fieldId="authentication">
              {(schema?.spec.authenticationServices ?? Object.keys(AUTHENTICATION)).map((name) => (
                <Radio
                  key={name}
                  id={`authentication-${name}`}
                  name="authentication"
                  label={AUTHENTICATION[name] ?? name}
                  description={name}
                  isChecked={choice.authentication === name}
                  onChange={() => change({ authentication: name })}
                />
              ))}
            </FormGroup>
          </Form>
        </WizardStep>
        <WizardStep name="Endpoints" id="endpoints" footer={{ isNextDisabled: choice.customise && (choice.endpoints.length === 0 || lacksSecret) }}>
          <Form onSubmit={(event) => event.preventDefault()}>
            <FormGroup role="radiogroup" label="Endpoints" fieldId="customise">
              <Radio id="endpoints-default" name="customise" label="As usual" description="AMQP, MQTT, STOMP, HTTP and WebSocket on the installation's ports, with its own certificate." isChecked={!choice.customise} onChange={() => change({ customise: false })} />
              <Radio id="endpoints-own" name="customise" label="My own" description="A host name or a certificate of your own." isChecked={choice.customise} onChange={() => change({ customise: true })} />
            </FormGroup>
            {choice.customise && (
              <>
                <FormGroup label="Protocols" role="group" fieldId="protocols">
                  {PROTOCOLS.map((protocol) => (
                    <label key={protocol} className="em-check">
                      <input
                        type="checkbox"
                        checked={choice.endpoints.includes(protocol)}
                        onChange={(event) =>
                          change({ endpoints: PROTOCOLS.filter((item) => (item === protocol ? event.target.checked : choice.endpoints.includes(item))) })
                        }
                      />{" "}
                      {protocol}
                    </label>
                  ))}
                </FormGroup>
                <FormGroup label="Certificate" role="radiogroup" fieldId="certificate">
                  {Object.entries(CERTIFICATES).map(([value, label]) => (
                    <Radio key={value} id={`cert-${value}`} name="certificate" label={label} isChecked={choice.certificate === value} onChange={() => change({ certificate: value })} />
                  ))}
                </FormGroup>
                {choice.certificate === "secret" && (
                  <FormGroup label="The Secret, with tls.crt and tls.key" fieldId="cert-secret-name" isRequired>
                    <TextInput id="cert-secret-name" value={choice.secretName} onChange={(_, value) => change({ secretName: value.trim() })} isRequired autoComplete="off" />
                  </FormGroup>
                )}
              </>
            )}
          </Form>
        </WizardStep>
        <WizardStep name="Certificate" id="certificate" isHidden={!own} footer={{ isNextDisabled: choice.tlsCert === "" || choice.tlsKey === "" }}>
          <Form onSubmit={(event) => event.preventDefault()}>
            <PemFile id="cert-file" label="Certificate with its chain (PEM)" isRead={choice.tlsCert !== ""} onRead={(tlsCert) => change({ tlsCert })} />
            <PemFile id="key-file" label="Key (PEM, not encrypted)" isRead={choice.tlsKey !== ""} onRead={(tlsKey) => change({ tlsKey })} />
          </Form>
        </WizardStep>
        <WizardStep name="Host and port" id="routes" isHidden={!choice.customise} footer={{ isNextDisabled: !isPort }}>
          <Form onSubmit={(event) => event.preventDefault()}>
            <FormGroup label="A host name of your own" fieldId="route-host">
              <TextInput id="route-host" value={choice.routeHost} onChange={(_, value) => change({ routeHost: value.trim() })} placeholder="mq.shop.example" autoComplete="off" />
              <FormHelperText>
                <HelperText>
                  <HelperTextItem>Of a domain that an operator has granted to the namespace. Without one, clients use the name that every space has, made from its own.</HelperTextItem>
                </HelperText>
              </FormHelperText>
            </FormGroup>
            <FormGroup label="A port of its own" fieldId="own-port">
              <TextInput id="own-port" value={choice.port} onChange={(_, value) => change({ port: value.trim() })} validated={isPort ? "default" : "error"} inputMode="numeric" autoComplete="off" />
              <FormHelperText>
                <HelperText>
                  <HelperTextItem variant={isPort ? "default" : "error"}>A number up to 65535, one of those that the plan offers: clients need not name the space there. Left out: the installation's ports.</HelperTextItem>
                </HelperText>
              </FormHelperText>
            </FormGroup>
            <Content component="p">TLS ends at the node (passthrough): the certificate that clients see is the one chosen before.</Content>
          </Form>
        </WizardStep>
        <WizardStep name="Review" id="review" footer={{ nextButtonText: "Create" }}>
          <Title headingLevel="h2">Review</Title>
          <Facts
            facts={[
              ["Name", choice.name],
              ["Namespace", choice.namespace],
              ["Type", choice.type],
              ["Plan", plan?.displayName ?? plan?.name],
              ["Who comes in", AUTHENTICATION[choice.authentication] ?? choice.authentication],
              ["Endpoints", choice.customise ? choice.endpoints.join(", ") : "As usual"],
              ["Certificate", choice.customise ? CERTIFICATES[choice.certificate] : undefined],
              ["Host name", choice.customise ? choice.routeHost : undefined],
              ["Port", choice.customise ? choice.port : undefined],
              ["TLS ends", choice.customise ? "at the node (passthrough)" : undefined],
            ]}
          />
          {choice.authentication === "none-authservice" && (
            <Alert isInline variant="warning" title="Every user of this machine may send and receive in such a space." className="em-above" />
          )}
          {named && <WouldFit<AddressSpace> url={path(`${V1}/namespaces`, choice.namespace, "addressspaces")} manifest={spaceManifest(complete)} />}
          {error && <Refusal error={error} />}
          <Content component="p" className="em-above">
            It amounts to this:
          </Content>
          <Amounts manifest={spaceManifest(complete, `<private key, ${choice.tlsKey.length} bytes>`)} command={command(complete)} />
          {own && (
            <Content component="p" className="em-above">
              The private key is not shown. Who applies this puts it there, in base64: <code>base64 -w0 tls.key</code>.
            </Content>
          )}
          {error?.code === 404 && <Check namespace={choice.namespace} />}
        </WizardStep>
      </Wizard>
    </PageFrame>
  );
}

function Check({ namespace }: { namespace: string }): ReactElement {
  return <Content component="p">The namespace {namespace} has to be created first; an operator does that with <code>{`kubectl create namespace ${shell(namespace)}`}</code>.</Content>;
}

function PemFile({ id, label, isRead, onRead }: { id: string; label: string; isRead: boolean; onRead: (text: string) => void }): ReactElement {
  const [wrong, setWrong] = useState(false);
  const read = async (file: File | undefined) => {
    const text = (await file?.text()) ?? "";
    const isPem = /^-----BEGIN [A-Z0-9 ]+-----/m.test(text) && !/[^\0-\x7f]/.test(text);
    setWrong(file !== undefined && !isPem);
    onRead(isPem ? text : "");
  };
  return (
    <FormGroup label={label} fieldId={id} isRequired>
      <input id={id} type="file" accept=".pem,.crt,.cer,.key" onChange={(event) => void read(event.target.files?.[0])} aria-describedby={`${id}-said`} />
      <FormHelperText>
        <HelperText id={`${id}-said`}>
          <HelperTextItem variant={wrong ? "error" : isRead ? "success" : "default"}>
            {wrong ? "This is no file in PEM, which begins with -----BEGIN." : isRead ? "It was read." : "A text file that begins with -----BEGIN."}
          </HelperTextItem>
        </HelperText>
      </FormHelperText>
    </FormGroup>
  );
}
