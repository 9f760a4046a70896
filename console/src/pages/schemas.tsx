import { Button, FormSelect, FormSelectOption, Label, SearchInput, Toolbar, ToolbarContent, ToolbarItem } from "@patternfly/react-core";
import PlusCircleIcon from "@patternfly/react-icons/dist/esm/icons/plus-circle-icon";
import { type ReactElement, useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";
import { path, query } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useGet } from "../api/live";
import { useRights } from "../api/rights";
import { type Level, LEVELS, registryOf, type SchemaVersion, setLevel } from "../api/schemas";
import { type Space, useSpace } from "../app/space";
import { Teach } from "../parts/empty";
import { plural } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Rows } from "../parts/rows";

/** Subjects that are drawn at a time. */
const MOST = 200;

export default function SchemasPage(): ReactElement {
  const space = useSpace();
  const navigate = useNavigate();
  const rights = useRights(space.namespace);
  const registry = registryOf(space);
  const [search, setSearch] = useSearchParams();
  const text = search.get("q") ?? "";
  const { data, error } = useGet<SchemaVersion[]>(query(`${registry}/schemas`, { latestOnly: true }));
  const mayCreate = rights.may("create", "addressspaces/schemas");
  const found = (data ?? []).filter(({ subject }) => subject.toLowerCase().includes(text.toLowerCase()));
  const creation = (
    <Button icon={<PlusCircleIcon />} onClick={() => void navigate(`${space.to}/new-schema`)} isAriaDisabled={!mayCreate} title={mayCreate ? undefined : "You may not register schemas here"}>
      Register a schema
    </Button>
  );
  return (
    <PageFrame
      title="Schemas"
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}
      about="What messages consist of, by subject and version. No version comes in that those who read or write could not cope with."
    >
      {error && <Refusal error={error} />}
      {data?.length === 0 && (
        <Teach title="No schema yet" actions={creation}>
          A <b>subject</b> has the versions of one schema, of Avro or JSON Schema; by custom it is called after the address, as <code>orders-value</code>.
        </Teach>
      )}
      {data !== undefined && data.length > 0 && (
        <>
          <Toolbar>
            <ToolbarContent>
              <ToolbarItem>
                <SearchInput aria-label="Find a subject" placeholder="Find by name" value={text} onChange={(_, next) => setSearch(next ? { q: next } : {}, { replace: true })} onClear={() => setSearch({}, { replace: true })} />
              </ToolbarItem>
              <ToolbarItem>{creation}</ToolbarItem>
            </ToolbarContent>
          </Toolbar>
          <Rows<SchemaVersion>
            label="Subjects"
            rows={found.slice(0, MOST)}
            rowKey={({ subject }) => subject}
            none="No subject is called so."
            heads={[
              { title: "Subject", cell: ({ subject }) => <Link to={path(`${space.to}/schemas`, subject)}><bdi>{subject}</bdi></Link> },
              { title: "Type", cell: ({ schemaType }) => <Label isCompact>{schemaType ?? "AVRO"}</Label> },
              { title: "Latest version", number: true, cell: ({ version }) => version },
              { title: "Id", number: true, cell: ({ id }) => id },
            ]}
          />
          <p className="em-total">{plural(found.length, "subject")}{found.length > MOST && `; the first ${MOST} are shown`}</p>
        </>
      )}
      {data && <SpaceLevel space={space} may={rights.may("update", "addressspaces/schemas")} />}
    </PageFrame>
  );
}

function SpaceLevel({ space, may }: { space: Space; may: boolean }): ReactElement | null {
  const { data, again, error } = useGet<Level>(`${registryOf(space)}/config`);
  if (error) return <Refusal error={error} />;
  if (!data) return null;
  return <LevelChoice label="Compatibility of new versions, where a subject says nothing else" space={space} level={data.compatibilityLevel} may={may} changed={again} />;
}

/** Chooses a level of compatibility; `inherited` offers a subject that of its space. */
export function LevelChoice(props: { label: string; space: Space; subject?: string; level: string; inherited?: string; may: boolean; changed: () => void }): ReactElement {
  const [error, setError] = useState<ApiError>();
  const choose = (level: string) => {
    setError(undefined);
    setLevel(registryOf(props.space), props.subject, level).then(props.changed, (caught: unknown) => setError(asApiError(caught)));
  };
  return (
    <>
      <div className="em-sql-bar">
        <label htmlFor="level">{props.label}</label>
        <FormSelect id="level" className="em-level" value={props.level} onChange={(_, level) => choose(level)} isDisabled={!props.may} title={props.may ? undefined : "You may not change the compatibility here"}>
          {props.inherited !== undefined && <FormSelectOption value="" label={`As the space: ${props.inherited}`} />}
          {LEVELS.map((level) => <FormSelectOption key={level} value={level} label={level} />)}
        </FormSelect>
      </div>
      {error && <Refusal error={error} />}
    </>
  );
}
