// A table whose rows the API filters, sorts and pages, and pushes again when they have changed. What is chosen is in
// the page's address, so that a link shows the same.
import {
  Alert,
  Button,
  Content,
  Dropdown,
  DropdownItem,
  DropdownList,
  MenuToggle,
  Pagination,
  SearchInput,
  Select,
  SelectList,
  SelectOption,
  Skeleton,
  Toolbar,
  ToolbarContent,
  ToolbarGroup,
  ToolbarItem,
} from "@patternfly/react-core";
import EllipsisVIcon from "@patternfly/react-icons/dist/esm/icons/ellipsis-v-icon";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { createContext, memo, type ReactElement, type ReactNode, useContext, useEffect, useMemo, useRef, useState } from "react";
import { useSearchParams } from "react-router";
import { query } from "../api/client";
import { useLatest } from "../api/live";
import type { RowList } from "../api/types";
import { plural } from "./format";
import { Refusal } from "./problem";

export interface Column<R> {
  /** The column's name at the API. */
  key: string;
  title: string;
  cell: (row: R) => ReactNode;
  sortable?: boolean;
  /** Numbers stand right. */
  number?: boolean;
  /** Never broken into lines. */
  brief?: boolean;
  info?: string;
}

export interface Filter {
  key: string;
  title: string;
  options: string[];
}

export interface Action<R> {
  title: string;
  /** `done` is called when the rows need not be chosen any more. */
  run: (rows: R[], done: () => void) => void;
  danger?: boolean;
  /** Why it is not offered. */
  refused?: string;
}

export interface LiveTableProps<R> {
  label: string;
  /** One row and several, as in "12 addresses". */
  noun: string;
  nouns?: string;
  /** The route of the rows, with what is fixed in its query. */
  url: string;
  columns: Column<R>[];
  rowKey: (row: R) => string;
  filters?: Filter[];
  sort?: string;
  rowActions?: (row: R) => Action<R>[];
  bulkActions?: Action<R>[];
  toolbar?: ReactNode;
  /** What stands here while there is nothing at all. */
  empty: ReactNode;
  /** Where two tables share a page: what their parameters begin with. */
  prefix?: string;
  searchLabel?: string;
  /** Its rows are objects: all are there, and what may be missing are figures. */
  declared?: boolean;
}

const PAGE = 20;

export function LiveTable<R>(props: LiveTableProps<R>): ReactElement {
  const { columns, filters = [], prefix = "", bulkActions = [] } = props;
  const [search, setSearch] = useSearchParams();
  const key = (name: string) => prefix + name;
  const text = search.get(key("q")) ?? "";
  const sort = search.get(key("sort")) ?? props.sort ?? columns[0]!.key;
  const page = Math.max(1, Number(search.get(key("page")) ?? 1));
  const perPage = Number(search.get(key("per")) ?? PAGE);
  const [chosen, setChosen] = useState<Map<string, R>>(new Map());

  const set = (changes: Record<string, string | undefined>) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        for (const [name, value] of Object.entries(changes)) {
          if (value) next.set(key(name), value);
          else next.delete(key(name));
        }
        return next;
      },
      { replace: true },
    );

  const chosenFilters = Object.fromEntries(filters.map((filter) => [filter.key, search.get(key(filter.key)) ?? undefined]));
  const url = query(props.url, { search: text, ...chosenFilters, sort, offset: (page - 1) * perPage, limit: perPage });
  const { data, error } = useLatest<RowList<R>>(url);
  const filtered = text !== "" || Object.values(chosenFilters).some(Boolean);

  // The last row of the last page may have gone.
  const total = data?.total ?? 0;
  const last = Math.max(1, Math.ceil(total / perPage));
  useEffect(() => {
    if (data && page > last) set({ page: last > 1 ? String(last) : undefined });
  });

  const rows = data?.items ?? [];
  const selectable = bulkActions.length > 0;
  const all = rows.length > 0 && rows.every((row) => chosen.has(props.rowKey(row)));
  const choose = (picked: R[], on: boolean) =>
    setChosen((before) => {
      const next = new Map(before);
      for (const row of picked) {
        if (on) next.set(props.rowKey(row), row);
        else next.delete(props.rowKey(row));
      }
      return next;
    });
  const latest = useRef({ choose, set, rows, actions: props.rowActions });
  latest.current = { choose, set, rows, actions: props.rowActions };
  const does = useMemo<RowDoes<R>>(
    () => ({
      choose: (rows, on) => latest.current.choose(rows, on),
      actions: (row) => latest.current.actions?.(row) ?? [],
    }),
    [],
  );
  const descending = sort.startsWith("-");
  const sortedBy = columns.findIndex((column) => column.key === sort.replace(/^-/, ""));
  const isEmpty = rows.length === 0;
  const hasActions = props.rowActions !== undefined;
  // Cells of a head measure themselves, too: it is drawn again only when it changes.
  const head = useMemo(
    () => (
      <Thead>
        <Tr>
          {selectable && (
            <Th
              aria-label="Choose all rows"
              select={{ isSelected: all, onSelect: (_, on) => latest.current.choose(latest.current.rows, on), isHeaderSelectDisabled: isEmpty }}
            />
          )}
          {columns.map((column, index) => (
            <Th
              key={column.key}
              modifier="nowrap"
              className={column.number ? "em-number" : undefined}
              info={column.info ? { tooltip: column.info, ariaLabel: `About ${column.title}` } : undefined}
              sort={
                column.sortable === false
                  ? undefined
                  : {
                      columnIndex: index,
                      sortBy: { index: sortedBy, direction: descending ? "desc" : "asc" },
                      onSort: (_, __, direction) =>
                        latest.current.set({ sort: direction === "desc" ? `-${column.key}` : column.key, page: undefined }),
                    }
              }
            >
              {column.title}
            </Th>
          ))}
          {hasActions && <Th screenReaderText="Actions" />}
        </Tr>
      </Thead>
    ),
    [columns, selectable, all, isEmpty, hasActions, descending, sortedBy],
  );
  const body = (
    <Tbody>
      {!data && !error && <Waiting columns={columns.length} />}
      {rows.map((row) => (
        <Row
          key={props.rowKey(row)}
          row={row}
          name={props.rowKey(row)}
          text={JSON.stringify(row)}
          columns={columns}
          isChosen={selectable ? chosen.has(props.rowKey(row)) : undefined}
          hasActions={hasActions}
          does={does}
        />
      ))}
    </Tbody>
  );
  // The same element as long as its head is: a table that is drawn again draws the head, too, whatever is in it.
  const table = useMemo(
    () => (
      <Table aria-label={props.label} variant="compact" gridBreakPoint="grid-md" isStickyHeader={false}>
        {head}
        <BodyHere />
      </Table>
    ),
    [props.label, head],
  );
  const pagination = (compact: boolean) => (
    <Pagination
      itemCount={total}
      page={page}
      perPage={perPage}
      isCompact={compact}
      perPageOptions={[20, 50, 100, 500].map((value) => ({ title: String(value), value }))}
      onSetPage={(_, next) => set({ page: next > 1 ? String(next) : undefined })}
      onPerPageSelect={(_, next) => set({ per: next === PAGE ? undefined : String(next), page: undefined })}
      widgetId={`${props.label}-${compact ? "top" : "bottom"}`}
    />
  );

  const truncatedAt = data?.truncatedAt;
  if (data && total === 0 && !filtered && !error && !truncatedAt) return <>{props.empty}</>;

  return (
    <>
      <Toolbar className="em-toolbar" inset={{ default: "insetNone" }}>
        <ToolbarContent>
          <ToolbarItem>
            <Find
              label={props.searchLabel ?? `Find ${props.nouns ?? `${props.noun}s`}`}
              value={text}
              onChange={(value) => set({ q: value, page: undefined })}
            />
          </ToolbarItem>
          {filters.map((filter) => (
            <ToolbarItem key={filter.key}>
              <Choice
                title={filter.title}
                options={filter.options}
                value={chosenFilters[filter.key]}
                onChange={(value) => set({ [filter.key]: value, page: undefined })}
              />
            </ToolbarItem>
          ))}
          {selectable && chosen.size > 0 && (
            <ToolbarGroup>
              <ToolbarItem className="em-chosen">{plural(chosen.size, "chosen", "chosen")}</ToolbarItem>
              {bulkActions.map((action) => (
                <ToolbarItem key={action.title}>
                  <Button
                    variant={action.danger ? "danger" : "secondary"}
                    isAriaDisabled={action.refused !== undefined}
                    title={action.refused}
                    onClick={() => action.run([...chosen.values()], () => setChosen(new Map()))}
                  >
                    {action.title}
                  </Button>
                </ToolbarItem>
              ))}
              <ToolbarItem>
                <Button variant="link" onClick={() => setChosen(new Map())}>
                  Choose none
                </Button>
              </ToolbarItem>
            </ToolbarGroup>
          )}
          {props.toolbar}
          <ToolbarItem align={{ default: "alignEnd" }} className="em-wide-only">
            {pagination(true)}
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      {error && <Refusal error={error} />}
      {truncatedAt && (
        <Alert
          isInline
          isPlain
          variant="info"
          title={
            props.declared
              ? `A node tells the figures of ${plural(truncatedAt, "address", "addresses")}. Others have none here, and count in no sum.`
              : `The space has more than ${plural(truncatedAt, props.noun, props.nouns)}. The others are neither listed nor found here.`
          }
        />
      )}
      <div className="em-table">
        <Body value={body}>{table}</Body>
      </div>
      {data && total === 0 && filtered && (
        <Content className="em-none" role="status">
          Nothing matches. <Button variant="link" isInline onClick={() => set({ q: undefined, ...Object.fromEntries(filters.map((filter) => [filter.key, undefined])) })}>Show all</Button>
        </Content>
      )}
      {total > perPage || perPage !== PAGE ? (
        <div className="em-below">{pagination(false)}</div>
      ) : (
        data && total > 0 && <p className="em-total">{plural(total, props.noun, props.nouns)}</p>
      )}
    </>
  );
}

/** What is between head and end of a table that is itself not drawn again. */
const Body = createContext<ReactNode>(null);

function BodyHere(): ReactNode {
  return useContext(Body);
}

/** A field to search by: it shows at once what is typed, while what is found follows. */
function Find({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }): ReactElement {
  const [text, setText] = useState(value);
  const told = useRef(new Set<string>());
  useEffect(() => {
    if (value === text) told.current.clear();
    else if (!told.current.has(value)) setText(value); // it came by a link
  }, [value, text]);
  const type = (next: string) => {
    told.current.add(value).add(next);
    setText(next);
    onChange(next);
  };
  return <SearchInput aria-label={label} placeholder="Find by name" value={text} onChange={(_, next) => type(next)} onClear={() => type("")} />;
}

interface RowDoes<R> {
  choose: (rows: R[], on: boolean) => void;
  actions: (row: R) => Action<R>[];
}

interface RowProps<R> {
  row: R;
  name: string;
  /** All of the row: what has not changed is not drawn again. */
  text: string;
  columns: Column<R>[];
  /** Undefined where nothing can be chosen. */
  isChosen: boolean | undefined;
  hasActions: boolean;
  does: RowDoes<R>;
}

// PatternFly's Td measures itself whenever it is drawn: with its classes on plain cells, a page of fifty rows takes a
// third of the time.
function PlainRow<R>({ row, name, columns, isChosen, hasActions, does }: RowProps<R>): ReactElement {
  return (
    <tr className="pf-v6-c-table__tr">
      {isChosen !== undefined && (
        <td className="pf-v6-c-table__td pf-v6-c-table__check">
          <label className="em-choose">
            <input type="checkbox" aria-label={`Choose ${name}`} checked={isChosen} onChange={(event) => does.choose([row], event.target.checked)} />
          </label>
        </td>
      )}
      {columns.map((column) => (
        <td
          key={column.key}
          data-label={column.title}
          className={`pf-v6-c-table__td${column.number || column.brief ? " pf-m-nowrap" : ""}${column.number ? " em-number" : ""}`}
        >
          <div>{column.cell(row)}</div>
        </td>
      ))}
      {hasActions && (
        <td className="pf-v6-c-table__td pf-v6-c-table__action">
          <RowMenu row={row} name={name} does={does} />
        </td>
      )}
    </tr>
  );
}

const Row = memo(
  PlainRow,
  (before, after) =>
    before.text === after.text &&
    before.columns === after.columns &&
    before.isChosen === after.isChosen &&
    before.hasActions === after.hasActions,
) as typeof PlainRow;

/** The actions of a row; the menu is made when it is first opened, since a page has fifty. */
function RowMenu<R>({ row, name, does }: { row: R; name: string; does: RowDoes<R> }): ReactElement {
  const [made, setMade] = useState(false);
  const [open, setOpen] = useState(false);
  const toggle = useRef<HTMLButtonElement>(null);
  // The press that made it has to be over: a menu closes at a press beside it. The next one opens it, and moves the focus.
  useEffect(() => {
    const timer = made && setTimeout(() => toggle.current?.click());
    return () => clearTimeout(timer || undefined);
  }, [made]);
  const shared = { variant: "plain", "aria-label": `Actions of ${name}`, icon: <EllipsisVIcon /> } as const;
  if (!made) return <Button {...shared} aria-haspopup="menu" aria-expanded={false} onClick={() => setMade(true)} />;
  return (
    <Dropdown
      isOpen={open}
      shouldFocusFirstItemOnOpen
      onOpenChange={setOpen}
      popperProps={{ position: "end" }}
      toggle={{ toggleRef: toggle, toggleNode: <MenuToggle ref={toggle} {...shared} isExpanded={open} onClick={() => setOpen(!open)} /> }}
    >
      <DropdownList>
        {does.actions(row).map((action) => (
          <MenuAction key={action.title} action={action} close={() => setOpen(false)} rows={[row]} choose={does.choose} />
        ))}
      </DropdownList>
    </Dropdown>
  );
}

function MenuAction<R>({ action, close, rows, choose }: { action: Action<R>; close: () => void; rows: R[]; choose?: (rows: R[], on: boolean) => void }): ReactElement {
  return (
    <DropdownItem
      isDanger={action.danger}
      isAriaDisabled={action.refused !== undefined}
      tooltipProps={action.refused ? { content: action.refused } : undefined}
      onClick={() => {
        close();
        action.run(rows, () => choose?.(rows, false));
      }}
    >
      {action.title}
    </DropdownItem>
  );
}

function Waiting({ columns }: { columns: number }): ReactElement {
  return (
    <>
      {[0, 1, 2].map((row) => (
        <Tr key={row}>
          {Array.from({ length: columns }, (_, index) => (
            <Td key={index}>
              <Skeleton screenreaderText={row + index === 0 ? "Loading" : undefined} />
            </Td>
          ))}
        </Tr>
      ))}
    </>
  );
}

/** One of a few values, or any. */
export function Choice(props: {
  title: string;
  options: string[];
  value: string | undefined;
  onChange: (value: string | undefined) => void;
}): ReactElement {
  const [open, setOpen] = useState(false);
  const pick = (value: string) => {
    props.onChange(value === "" ? undefined : value);
    setOpen(false);
  };
  return (
    <Select
      isOpen={open}
      onOpenChange={setOpen}
      selected={props.value ?? ""}
      onSelect={(_, value) => pick(String(value))}
      toggle={(ref) => (
        <MenuToggle ref={ref} isExpanded={open} onClick={() => setOpen(!open)}>
          {props.value ? `${props.title}: ${props.value}` : props.title}
        </MenuToggle>
      )}
    >
      <SelectList>
        <SelectOption value="">Any</SelectOption>
        {props.options.map((option) => (
          <SelectOption key={option} value={option}>
            {option}
          </SelectOption>
        ))}
      </SelectList>
    </Select>
  );
}

/** A menu of actions on what a page shows. */
export function ActionsMenu({ actions, label = "Actions" }: { actions: Action<undefined>[]; label?: string }): ReactElement {
  const [open, setOpen] = useState(false);
  return (
    <Dropdown
      isOpen={open}
      shouldFocusFirstItemOnOpen
      onOpenChange={setOpen}
      popperProps={{ position: "end" }}
      toggle={(ref) => (
        <MenuToggle ref={ref} isExpanded={open} onClick={() => setOpen(!open)}>
          {label}
        </MenuToggle>
      )}
    >
      <DropdownList>
        {actions.map((action) => (
          <MenuAction key={action.title} action={action} close={() => setOpen(false)} rows={[]} />
        ))}
      </DropdownList>
    </Dropdown>
  );
}
