import { Breadcrumb, BreadcrumbItem, Content, Flex, FlexItem, PageSection, Title } from "@patternfly/react-core";
import { type ReactElement, type ReactNode, useEffect } from "react";
import { Link } from "react-router";

/** The head of every page: where one is, what it is called, what can be done, and the content below. */
export function PageFrame(props: {
  title: string;
  /** Beside the title, as a status. */
  beside?: ReactNode;
  trail?: { title: string; to: string }[];
  about?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}): ReactElement {
  useEffect(() => {
    document.title = `${props.title} · EnMasse`;
  }, [props.title]);
  return (
    <>
      <PageSection className="em-head">
        {props.trail && (
          <Breadcrumb>
            {props.trail.map((step) => (
              <BreadcrumbItem key={step.to} render={({ className }) => <Link className={className} to={step.to}>{step.title}</Link>} />
            ))}
            <BreadcrumbItem isActive>{props.title}</BreadcrumbItem>
          </Breadcrumb>
        )}
        <Flex className="em-title" alignItems={{ default: "alignItemsCenter" }} columnGap={{ default: "columnGapMd" }}>
          <FlexItem>
            <Title headingLevel="h1" className="em-name">
              <bdi>{props.title}</bdi>
            </Title>
          </FlexItem>
          {props.beside && <FlexItem>{props.beside}</FlexItem>}
          {props.actions && <FlexItem align={{ default: "alignRight" }}>{props.actions}</FlexItem>}
        </Flex>
        {props.about && <Content component="p">{props.about}</Content>}
      </PageSection>
      <PageSection isFilled className="em-body">
        {props.children}
      </PageSection>
    </>
  );
}
