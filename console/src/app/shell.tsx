// What is around every page: masthead, navigation, banner, login.
import {
  Banner,
  Brand,
  Button,
  Dropdown,
  DropdownItem,
  DropdownList,
  Masthead,
  MastheadBrand,
  MastheadContent,
  MastheadLogo,
  MastheadMain,
  MastheadToggle,
  MenuToggle,
  Nav,
  NavGroup,
  NavItem,
  NavList,
  Page,
  PageSidebar,
  PageSidebarBody,
  PageToggleButton,
  SkipToContent,
  Toolbar,
  ToolbarContent,
  ToolbarGroup,
  ToolbarItem,
} from "@patternfly/react-core";
import BarsIcon from "@patternfly/react-icons/dist/esm/icons/bars-icon";
import MoonIcon from "@patternfly/react-icons/dist/esm/icons/moon-icon";
import SearchIcon from "@patternfly/react-icons/dist/esm/icons/search-icon";
import QuestionCircleIcon from "@patternfly/react-icons/dist/esm/icons/question-circle-icon";
import UserIcon from "@patternfly/react-icons/dist/esm/icons/user-icon";
import SunIcon from "@patternfly/react-icons/dist/esm/icons/sun-icon";
import { type ReactElement, type ReactNode, useEffect, useState } from "react";
import { Link, matchPath, useLocation } from "react-router";
import { send } from "../api/client";
import { useGet } from "../api/live";
import { useRights } from "../api/rights";
import type { Person } from "../api/person";
import { forgetProof } from "../api/proof";
import { setReach, useReach } from "../api/state";
import type { ConsoleConfig } from "../api/types";
import { LoginDialog, ProofDialog } from "./login";
import { type ConsolePage, pages, SPACE } from "./pages";
import { useTheme } from "./theme";
import { beginTour, Tour } from "./tour";

const MAIN = "main";

/** The namespace and name in the path, if the page is one of a space. */
export function useSpaceInPath(): { namespace: string; space: string } | undefined {
  const { pathname } = useLocation();
  const found = matchPath(`${SPACE}/*`, pathname)?.params;
  if (!found?.namespace || !found.space) return undefined;
  return { namespace: found.namespace, space: found.space };
}

/** The path of a page, with the space's names in it. */
export function pathOf(page: ConsolePage, place: { namespace: string; space: string } | undefined): string {
  return page.path
    .replace(":namespace", encodeURIComponent(place?.namespace ?? ""))
    .replace(":space", encodeURIComponent(place?.space ?? ""));
}

function NavEntries({ kind }: { kind: "installation" | "space" }): ReactElement {
  const place = useSpaceInPath();
  const { pathname } = useLocation();
  const rights = useRights(place?.namespace);
  const entries = pages.filter(
    (page) => page.nav === kind && (!page.needs || !rights.known || rights.may(page.needs.verb, page.needs.resource)),
  );
  const active = (page: ConsolePage) =>
    matchPath({ path: page.path, end: page.path === "/" || page.path === "/spaces" }, pathname) !== null;
  return (
    <>
      {entries.map((page) => (
        <NavItem key={page.path} isActive={active(page)}>
          <Link to={pathOf(page, place)} aria-current={active(page) ? "page" : undefined}>
            {page.title}
          </Link>
        </NavItem>
      ))}
    </>
  );
}

function Sidebar({ open, onChoose }: { open: boolean; onChoose: () => void }): ReactElement {
  const place = useSpaceInPath();
  return (
    <PageSidebar isSidebarOpen={open}>
      <PageSidebarBody>
        <Nav aria-label="Pages" onSelect={onChoose}>
          {place && (
            <NavGroup title={place.space} className="em-nav-space">
              <NavEntries kind="space" />
            </NavGroup>
          )}
          {place ? (
            <NavGroup title="Installation">
              <NavEntries kind="installation" />
            </NavGroup>
          ) : (
            <NavList>
              <NavEntries kind="installation" />
            </NavList>
          )}
        </Nav>
      </PageSidebarBody>
    </PageSidebar>
  );
}

function PersonMenu(): ReactElement | null {
  const { signedOut } = useReach();
  const { data } = useGet<Person>(signedOut ? null : "/whoami");
  const [open, setOpen] = useState(false);
  const name = data?.username;
  useEffect(() => {
    if (name) setReach({ person: name });
  }, [name]);
  if (!name) return null;
  const leave = async () => {
    forgetProof();
    await send("POST", "/logout").catch(() => undefined);
    // Nothing of what was shown stays for the next one.
    window.location.assign("/console/");
  };
  return (
    <Dropdown
      isOpen={open}
      shouldFocusFirstItemOnOpen
      onOpenChange={setOpen}
      onSelect={() => setOpen(false)}
      popperProps={{ position: "end" }}
      toggle={(ref) => (
        <MenuToggle ref={ref} isExpanded={open} onClick={() => setOpen(!open)} variant="plainText" className="em-person" icon={<UserIcon />} aria-label={`Signed in as ${name}`}>
          <span className="em-wide-only">{name}</span>
        </MenuToggle>
      )}
    >
      <DropdownList>
        <DropdownItem isDisabled>{name}</DropdownItem>
        {(data?.groups ?? []).map((group) => (
          <DropdownItem key={group} isDisabled>
            in {group}
          </DropdownItem>
        ))}
        <DropdownItem component={(props) => <Link {...props} to="/account" />}>Tokens and sessions</DropdownItem>
        <DropdownItem onClick={() => void leave()}>Sign out</DropdownItem>
      </DropdownList>
    </Dropdown>
  );
}

function HelpMenu({ version }: { version: string | undefined }): ReactElement {
  const [open, setOpen] = useState(false);
  return (
    <Dropdown
      isOpen={open}
      shouldFocusFirstItemOnOpen
      onOpenChange={setOpen}
      onSelect={() => setOpen(false)}
      popperProps={{ position: "end" }}
      toggle={(ref) => <MenuToggle ref={ref} variant="plain" isExpanded={open} onClick={() => setOpen(!open)} aria-label="Help" icon={<QuestionCircleIcon />} />}
    >
      <DropdownList>
        <DropdownItem onClick={beginTour} description="From a space to a message received">A tour of a minute</DropdownItem>
        <DropdownItem to="/openapi/v3" target="_blank" description="What these pages do, programs can do">The API, as OpenAPI</DropdownItem>
        {version && <DropdownItem isDisabled>EnMasse {version}</DropdownItem>}
      </DropdownList>
    </Dropdown>
  );
}

const FIRST_LOOK_MS = 500;
const LONGEST_LOOK_MS = 4_000;

/** Looks again and again whether an API that was away is back: a page without a stream would not notice. */
function useReturn(here: boolean): void {
  useEffect(() => {
    if (here) return;
    let delay = FIRST_LOOK_MS;
    let timer = 0;
    const look = () => {
      timer = window.setTimeout(() => {
        delay = Math.min(delay * 1.5, LONGEST_LOOK_MS);
        send("GET", "/console/config.json").catch(look);
      }, delay);
    };
    look();
    return () => window.clearTimeout(timer);
  }, [here]);
}

export function Shell({ children, palette }: { children: ReactNode; palette: (open: boolean, close: () => void) => ReactNode }): ReactElement {
  // On a narrow page the navigation lies over the content; the page itself knows how wide it is.
  const [narrow, setNarrow] = useState<boolean>();
  const [open, setOpen] = useState(true);
  useEffect(() => setOpen(!narrow), [narrow]);
  const [searching, setSearching] = useState(false);
  const { dark, toggle } = useTheme();
  const { here } = useReach();
  useReturn(here);
  const config = useGet<ConsoleConfig>("/console/config.json").data;

  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setSearching((before) => !before);
      }
    };
    window.addEventListener("keydown", key);
    return () => window.removeEventListener("keydown", key);
  }, []);

  const masthead = (
    <Masthead display={{ default: "inline" }}>
      <MastheadMain>
        <MastheadToggle>
          <PageToggleButton isSidebarOpen={open} onSidebarToggle={() => setOpen(!open)} aria-label="Navigation" variant="plain">
            <BarsIcon />
          </PageToggleButton>
        </MastheadToggle>
        <MastheadBrand>
          <MastheadLogo component={(props) => <Link {...props} to="/" />}>
            <Brand src={MARK} alt="EnMasse" heights={{ default: "28px" }} />
            <span className="em-brand em-wide-only">EnMasse</span>
          </MastheadLogo>
        </MastheadBrand>
      </MastheadMain>
      <MastheadContent>
        <Toolbar isStatic>
          <ToolbarContent>
            <ToolbarGroup align={{ default: "alignEnd" }} columnGap={{ default: "columnGapSm" }}>
              <ToolbarItem>
                <Button variant="control" icon={<SearchIcon />} onClick={() => setSearching(true)} className="em-search" aria-keyshortcuts="Control+K">
                  <span className="em-wide-only">Go to … </span>
                  <kbd className="em-wide-only">Ctrl K</kbd>
                </Button>
              </ToolbarItem>
              <ToolbarItem>
                <Button variant="plain" aria-label={dark ? "Light colours" : "Dark colours"} onClick={toggle} icon={dark ? <SunIcon /> : <MoonIcon />} />
              </ToolbarItem>
              <ToolbarItem>
                <HelpMenu version={config?.version} />
              </ToolbarItem>
              <ToolbarItem>
                <PersonMenu />
              </ToolbarItem>
            </ToolbarGroup>
          </ToolbarContent>
        </Toolbar>
      </MastheadContent>
    </Masthead>
  );
  return (
    <Page
      masthead={masthead}
      sidebar={<Sidebar open={open} onChoose={() => narrow && setOpen(false)} />}
      onPageResize={(_, { mobileView }) => setNarrow(mobileView)}
      skipToContent={<SkipToContent href={`#${MAIN}`}>To the content</SkipToContent>}
      mainContainerId={MAIN}
      banner={
        !here && (
          <Banner status="warning" role="status" screenReaderText="Warning">
            The API does not answer; trying again …
          </Banner>
        )
      }
    >
      <Tour />
      {children}
      <LoginDialog config={config} />
      <ProofDialog config={config} />
      {palette(searching, () => setSearching(false))}
    </Page>
  );
}

const MARK =
  "data:image/svg+xml," +
  encodeURIComponent(
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><rect width='32' height='32' rx='7' fill='#0b5cad'/><path d='M8 10h16M8 16h11M8 22h16' stroke='#fff' stroke-width='3' stroke-linecap='round'/></svg>",
  );
