import { Button, Card, CardBody, CardTitle, FormSelect, FormSelectOption, Grid, GridItem, Label } from "@patternfly/react-core";
import { type ReactElement } from "react";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";
import { path, query } from "../api/client";
import { useGet } from "../api/live";
import { useRights } from "../api/rights";
import { forget, type Level, pretty, registryOf, type SchemaVersion } from "../api/schemas";
import { type Space, useSpace } from "../app/space";
import { Code } from "../parts/code";
import { useConfirm } from "../parts/confirm";
import { Diff } from "../parts/diff";
import { Teach } from "../parts/empty";
import { plural } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Rows } from "../parts/rows";
import { type Action, ActionsMenu } from "../parts/table";
import { LevelChoice } from "./schemas";

export default function SchemaPage(): ReactElement {
  const space = useSpace();
  const { subject = "" } = useParams();
  const navigate = useNavigate();
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const [search, setSearch] = useSearchParams();
  const all = useGet<SchemaVersion[]>(query(`${registryOf(space)}/schemas`, { subjectPrefix: subject }));
  const versions = (all.data ?? []).filter((one) => one.subject === subject).sort((a, b) => b.version - a.version);
  const byNumber = (text: string | null) => versions.find(({ version }) => String(version) === text);
  const shown = byNumber(search.get("version")) ?? versions[0];
  const against = byNumber(search.get("against"));
  const mayCreate = rights.may("create", "addressspaces/schemas");
  const list = `${space.to}/schemas`;
  const choose = (version: number, other?: number) => setSearch({ version: String(version), ...(other === undefined ? {} : { against: String(other) }) }, { replace: true });
  const refused = rights.may("delete", "addressspaces/schemas") ? undefined : "You may not delete schemas here";
  const stays = "Messages that have it can be read as before. Pipelines that name it fail when they start again.";
  const deletions = (shown: SchemaVersion): Action<undefined>[] => [
    {
      title: `Delete version ${shown.version}`,
      danger: true,
      refused: refused ?? (versions.length === 1 ? "It is the only version: delete the subject" : undefined),
      run: () =>
        confirm({
          title: <>Delete version {shown.version} of <bdi>{subject}</bdi>?</>,
          loses: `New versions are no longer held against it. ${stays}`,
          action: "Delete",
          run: async () => {
            await forget(registryOf(space), subject, shown.version);
            setSearch({}, { replace: true });
            all.again();
          },
        }),
    },
    {
      title: "Delete the subject",
      danger: true,
      refused,
      run: () =>
        confirm({
          title: <>Delete <bdi>{subject}</bdi>?</>,
          loses: `It goes with ${plural(versions.length, "version")} and its compatibility. ${stays}`,
          action: "Delete",
          run: async () => {
            await forget(registryOf(space), subject);
            void navigate(list);
          },
        }),
    },
  ];
  return (
    <PageFrame
      title={subject}
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }, { title: "Schemas", to: list }]}
      beside={shown && <Label isCompact>{shown.schemaType ?? "AVRO"}</Label>}
      actions={
        shown && (
          <>
            <Button className="em-beside" onClick={() => void navigate(query(`${space.to}/new-schema`, { subject }))} isAriaDisabled={!mayCreate} title={mayCreate ? undefined : "You may not register schemas here"}>
              Register a version
            </Button>
            <ActionsMenu actions={deletions(shown)} />
          </>
        )
      }
    >
      {all.error && <Refusal error={all.error} />}
      {all.data && !shown && <Teach title="There is no such subject" actions={<Link to={list}>All subjects</Link>}>It may have been deleted meanwhile.</Teach>}
      {shown && (
        <>
          <SubjectLevel space={space} subject={subject} may={rights.may("update", "addressspaces/schemas")} />
          <Grid hasGutter>
            <GridItem lg={4}>
              <Card isCompact>
                <CardTitle component="h2">Versions</CardTitle>
                <CardBody>
                  <Rows<SchemaVersion>
                    label="Versions"
                    rows={versions}
                    rowKey={({ version }) => String(version)}
                    none=""
                    heads={[
                      { title: "Version", number: true, cell: ({ version }) => version },
                      { title: "Id", number: true, cell: ({ id }) => id },
                      {
                        title: "Look",
                        cell: ({ version }, ) => {
                          const before = versions.find((one) => one.version < version);
                          return (
                            <>
                              <Button variant="link" isInline className="em-beside" onClick={() => choose(version)} aria-label={`Show version ${version}`}>Show</Button>
                              {before && <Button variant="link" isInline onClick={() => choose(version, before.version)} aria-label={`What changed in version ${version}`}>What changed</Button>}
                            </>
                          );
                        },
                      },
                    ]}
                  />
                </CardBody>
              </Card>
            </GridItem>
            <GridItem lg={8}>
              <Card isCompact>
                <CardTitle component="h2">Version {shown.version}</CardTitle>
                <CardBody>
                  {versions.length > 1 && (
                    <div className="em-sql-bar">
                      <label htmlFor="against">Compared with</label>
                      <FormSelect id="against" className="em-level" value={against?.version ?? ""} onChange={(_, other) => choose(shown.version, other ? Number(other) : undefined)}>
                        <FormSelectOption value="" label="nothing: all of it" />
                        {versions.filter((one) => one !== shown).map(({ version }) => <FormSelectOption key={version} value={version} label={`version ${version}`} />)}
                      </FormSelect>
                    </div>
                  )}
                  {against ? (
                    <Diff before={pretty(against.schema)} after={pretty(shown.schema)} label={`From version ${against.version} to version ${shown.version}`} />
                  ) : (
                    <Code text={pretty(shown.schema)} file={`${subject}-${shown.version}.json`} />
                  )}
                </CardBody>
              </Card>
            </GridItem>
          </Grid>
        </>
      )}
    </PageFrame>
  );
}

function SubjectLevel({ space, subject, may }: { space: Space; subject: string; may: boolean }): ReactElement | null {
  const registry = registryOf(space);
  const ofSpace = useGet<Level>(`${registry}/config`);
  const own = useGet<Level>(path(`${registry}/config`, subject));
  // A subject without a level of its own answers 404.
  if (!ofSpace.data || (!own.data && own.error?.code !== 404)) return own.error ? <Refusal error={own.error} /> : null;
  return <LevelChoice label="Compatibility of new versions" space={space} subject={subject} level={own.data?.compatibilityLevel ?? ""} inherited={ofSpace.data.compatibilityLevel} may={may} changed={own.again} />;
}
